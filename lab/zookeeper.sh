#!/usr/bin/env bash
# zookeeper.sh FOLDER ADDRESS PORT: becomes a ZooKeeper server for tests, alone, with its data in FOLDER.
# It serves once `srvr`, said to its port, is answered with "Mode: standalone". Kill it at will: it goes on with the
# same folder.
set -euo pipefail

(($# == 3)) || { echo "usage: $0 FOLDER ADDRESS PORT" >&2; exit 2; }
folder=$1 address=$2 port=$3

# Debian's jar names all that it needs; the other one brings the log to standard error.
jars=(/usr/share/java/zookeeper.jar /usr/share/java/slf4j-simple.jar)
if [[ ! -r ${jars[0]} ]] || ! command -v java >/dev/null; then
  echo "$0: there is no ZooKeeper server; apt-get install --no-install-recommends zookeeper default-jre-headless" >&2
  exit 3
fi

mkdir -p "$folder"
# A quick clock, so that sessions of a few seconds are not cut to coarse ones.
cat >"$folder/zoo.cfg" <<END
dataDir=$folder
clientPort=$port
clientPortAddress=$address
tickTime=500
maxClientCnxns=0
4lw.commands.whitelist=srvr,wchs
admin.enableServer=false
END

# It starts in half a second so; and it need not survive the loss of the machine.
exec java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData \
  -Dzookeeper.forceSync=no -Dzookeeper.preAllocSize=256 -Dzookeeper.jmx.log4j.disable=true \
  -cp "$(IFS=:; echo "${jars[*]}")" org.apache.zookeeper.server.ZooKeeperServerMain "$folder/zoo.cfg"
