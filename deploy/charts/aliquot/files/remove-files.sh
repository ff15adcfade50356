# Removes what the node agent has written on its node: remove-files STATE RUN CDI DEVICE-PLUGINS PODS.
# While a pod has a slice nothing is touched: its pages lie in RUN/host/tenants, and the kubelet keeps its directory in
# PODS until it has ended.
set -eu
trap 'exit 143' TERM
state=$1 run=$2 cdi=$3 plugins=$4 pods=$5

# A directory of ours; of one that somebody has mounted there, what is in it.
remove() {
  rm -rf "$1"/* "$1"/.[!.]*
  [ ! -d "$1" ] || rmdir "$1" 2>/dev/null || [ -z "$(ls -A "$1")" ]
}

with_slices() {
  for pages in "$run"/host/tenants/*; do
    [ ! -d "$pods/${pages##*/}" ] || printf '%s ' "${pages##*/}"
  done
}

told=
while there=$(with_slices) && [ -n "$there" ]; do
  if [ "$there" != "$told" ]; then
    echo "pods with slices are still on this node (by UID): $there" >&2
    echo "nothing is removed until they have ended; set agent.removeFiles to false to go on using the node" >&2
    told=$there
  fi
  sleep 1 & wait $!
done
remove "$run"
rm -f "$cdi"/aliquot.dev-slice_*.json "$cdi"/.aliquot.dev-slice_* "$plugins"/aliquot-*.sock
remove "$state"
echo "nothing of Aliquot is left on this node"
