# bash completion for loch: commands, options, stores (of the directory in effect) and files.

# Offers what compgen gives for these arguments; of _loch's variables.
_loch_offer() {
  local offer
  while IFS= read -r offer; do
    COMPREPLY+=("${offer#"$kept"}")
  done < <(compgen "$@" -- "$current")
}

# The same, of files: with a slash after a folder, and what is special in a name quoted.
_loch_offer_files() {
  compopt -o filenames
  _loch_offer "$@"
}

# The stores of the directory in effect, or of that of shm:///folder/name.
_loch_offer_stores() {
  local store before=""
  if [[ $current == shm:///* ]]; then
    before=${current%/*}/
    directory=(--directory "${before#shm://}")
  elif [[ $current == shm://* ]]; then
    before=shm://
  fi
  # Not by compgen -W, which expands what it is given as a command line would.
  while IFS= read -r store; do
    store=$before$store
    [[ $store != "$current"* ]] || COMPREPLY+=("${store#"$kept"}")
  done < <("${COMP_WORDS[0]}" "${directory[@]}" ls 2>/dev/null)
}

_loch() {
  local commands="put get remove exists touch incr scan-all count load dump create ls stat inspect rm cluster gc check doctor bench"
  local globals="--directory --from --placement --key-file --read-only --tls-authority --tls-certificate --tls-key --timeout --json --yes --quiet --help"
  local command="" word i positionals=0 skip=0
  local -a directory=() words=()
  COMPREPLY=()

  # bash cuts words at '=' and ':'. --option=value comes as three, and is here the two that it means; a URL, or a
  # key such as user:17, is here the one that it was.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == "=" && ${COMP_WORDS[i - 1]} == --* ]]; then
      ((i < COMP_CWORD)) || words+=("")
    elif ((i > 1)) && [[ $word == +(:) || ${COMP_WORDS[i - 1]} == +(:) ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
  done
  local last=$((${#words[@]} - 1))
  local current=${words[last]} previous=${words[last - 1]}
  # What bash keeps of the word being typed, where it has cut it.
  local kept=""
  [[ ${COMP_WORDS[COMP_CWORD]} == "$current" ]] || kept=${current%"${current##*:}"}

  # What stands before the word being typed: the command, how many positionals, the directory.
  for ((i = 1; i < last; i++)); do
    word=${words[i]}
    if ((skip)); then
      skip=0
      continue
    fi
    case $word in
      -d | --directory)
        directory=(--directory "${words[i + 1]}")
        skip=1
        ;;
      --directory=*) directory=("$word") ;;
      --from | --placement | --key-file | --tls-authority | --tls-certificate | --tls-key | --timeout | -f | --file | --ttl | --if-version | --prefix | --by | -n | --limit | --format | -w | --watch | --times | \
        --candidates | --max-bytes | --expiry | --mode | --group | --atomics | \
        --coordinator | --regions | --shards | --at-most) skip=1 ;;
      -*) ;;
      *)
        if [[ -z $command ]]; then
          command=$word
        elif [[ $command == cluster ]]; then
          command="cluster $word"
        else
          ((positionals++))
        fi
        ;;
    esac
  done
  [[ $command == bench ]] && return

  case $previous in
    -d | --directory)
      _loch_offer_files -d
      return
      ;;
    --placement)
      _loch_offer -W "local spread by-key"
      return
      ;;
    -f | --file | --key-file | --tls-authority | --tls-certificate | --tls-key)
      _loch_offer_files -f
      return
      ;;
    --format)
      _loch_offer -W "tsv jsonl"
      return
      ;;
    --atomics)
      _loch_offer -W "processor device"
      return
      ;;
    --candidates)
      _loch_offer -W "2 3 4"
      return
      ;;
    --mode)
      _loch_offer -W "600 660 666"
      return
      ;;
    --group)
      _loch_offer -g
      return
      ;;
    --from | --timeout | --ttl | --if-version | --prefix | --by | -n | --limit | -w | --watch | --times | --max-bytes | \
      --expiry | --coordinator | --regions | --shards | --at-most) return ;;
  esac

  if [[ $current == -* ]]; then
    local options=""
    case $command in
      "") options="--version" ;;
      put) options="--file --ttl --if-absent --if-version --no-create --hex --hex-key --hex-value" ;;
      get) options="--hex --hex-key --hex-value" ;;
      remove) options="--all --prefix --if-version --hex --hex-key" ;;
      touch) options="--ttl --persist --hex --hex-key" ;;
      incr) options="--by --ttl --no-create --hex --hex-key" ;;
      exists | inspect) options="--hex --hex-key" ;;
      scan-all) options="--prefix --keys --limit --format" ;;
      count) options="--prefix" ;;
      load) options="--format --ttl --continue-on-error --no-create" ;;
      dump) options="--prefix --format" ;;
      create) options="--candidates --max-bytes --expiry --mode --group --atomics --no-huge-pages" ;;
      ls) options="--long" ;;
      stat) options="--watch --times" ;;
      cluster | "cluster status") options="--coordinator" ;;
      "cluster add") options="--coordinator --regions --shards" ;;
      "cluster drain") options="--coordinator --wait --at-most" ;;
      "cluster remove") options="--coordinator --lost" ;;
    esac
    _loch_offer -W "$options $globals"
  elif [[ -z $command ]]; then
    _loch_offer -W "$commands"
  elif [[ $command == cluster ]]; then
    _loch_offer -W "status add drain remove"
  elif [[ $command == cluster\ * ]]; then
    return
  elif ((positionals == 0)) && [[ $command != ls && $command != create ]]; then
    _loch_offer_stores
  elif ((positionals == 1)) && [[ $command == load || $command == dump ]]; then
    _loch_offer_files -f
  fi
}

complete -o bashdefault -F _loch loch
