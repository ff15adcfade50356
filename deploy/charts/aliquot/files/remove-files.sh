# Removes what the node agent has written on its node: remove-files STATE RUN CDI DEVICE-PLUGINS.
# While a container has a slice, its pages lie in RUN/host/tenants, and nothing is touched.
set -eu
state=$1 run=$2 cdi=$3 plugins=$4

# A directory of ours; of one that somebody has mounted there, what is in it.
remove() {
  rm -rf "$1"/* "$1"/.[!.]*
  [ ! -d "$1" ] || rmdir "$1" 2>/dev/null || [ -z "$(ls -A "$1")" ]
}

if [ -d "$run/host/tenants" ] && [ -n "$(ls -A "$run/host/tenants")" ]; then
  echo "pods with slices are still on this node (by UID): $(ls "$run/host/tenants" | tr '\n' ' ')" >&2
  echo "set agent.removeFiles to false, delete them, and try again" >&2
  exit 1
fi
remove "$run"
rm -f "$cdi"/aliquot.dev-slice_*.json "$cdi"/.aliquot.dev-slice_* "$plugins"/aliquot-*.sock
remove "$state"
echo "nothing of Aliquot is left on this node"
