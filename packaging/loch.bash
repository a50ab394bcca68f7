# bash completion for loch: commands, options, stores (of the directory in effect) and files.

_loch() {
  local commands="put get remove exists scan-all count load dump create ls stat inspect rm cluster gc check doctor bench"
  local globals="--directory --from --placement --key-file --read-only --tls-authority --tls-certificate --tls-key --timeout --json --yes --quiet --help"
  local command="" word i positionals=0 skip=0
  local -a directory=() words=()
  COMPREPLY=()

  # --option=value comes as three words, and is here the two that it means.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == "=" && ${COMP_WORDS[i - 1]} == --* ]]; then
      ((i < COMP_CWORD)) || words+=("")
    else
      words+=("$word")
    fi
  done
  local last=$((${#words[@]} - 1))
  local current=${words[last]} previous=${words[last - 1]}

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
      --from | --placement | --key-file | --tls-authority | --tls-certificate | --tls-key | --timeout | -f | --file | --ttl | --if-version | -n | --limit | --format | -w | --watch | --times | \
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
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      return
      ;;
    --placement)
      mapfile -t COMPREPLY < <(compgen -W "local spread by-key" -- "$current")
      return
      ;;
    -f | --file | --key-file | --tls-authority | --tls-certificate | --tls-key)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
    --format)
      mapfile -t COMPREPLY < <(compgen -W "tsv jsonl" -- "$current")
      return
      ;;
    --atomics)
      mapfile -t COMPREPLY < <(compgen -W "processor device" -- "$current")
      return
      ;;
    --group)
      mapfile -t COMPREPLY < <(compgen -g -- "$current")
      return
      ;;
    --from | --timeout | --ttl | --if-version | -n | --limit | -w | --watch | --times | --candidates | --max-bytes | \
      --expiry | --mode | --coordinator | --regions | --shards | --at-most) return ;;
  esac

  if [[ $current == -* ]]; then
    local options=""
    case $command in
      "") options="--version" ;;
      put) options="--file --ttl --if-absent --if-version --no-create --hex --hex-key --hex-value" ;;
      get) options="--hex --hex-key --hex-value" ;;
      remove) options="--all --hex --hex-key" ;;
      exists | inspect) options="--hex --hex-key" ;;
      scan-all) options="--keys --limit --format" ;;
      load) options="--format --ttl --continue-on-error --no-create" ;;
      dump) options="--format" ;;
      create) options="--candidates --max-bytes --expiry --mode --group --atomics --no-huge-pages" ;;
      ls) options="--long" ;;
      stat) options="--watch --times" ;;
      cluster | "cluster status") options="--coordinator" ;;
      "cluster add") options="--coordinator --regions --shards" ;;
      "cluster drain") options="--coordinator --wait --at-most" ;;
      "cluster remove") options="--coordinator --lost" ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$options $globals" -- "$current")
  elif [[ -z $command ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  elif [[ $command == cluster ]]; then
    mapfile -t COMPREPLY < <(compgen -W "status add drain remove" -- "$current")
  elif [[ $command == cluster\ * ]]; then
    return
  elif ((positionals == 0)) && [[ $command != ls && $command != create ]]; then
    # Not by compgen -W, which expands what it is given as a command line would.
    local store
    while IFS= read -r store; do
      [[ $store != "$current"* ]] || COMPREPLY+=("$store")
    done < <("${COMP_WORDS[0]}" "${directory[@]}" ls 2>/dev/null)
  elif ((positionals == 1)) && [[ $command == load || $command == dump ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}

complete -o bashdefault -F _loch loch
