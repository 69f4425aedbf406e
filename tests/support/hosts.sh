#!/bin/sh
# hosts.sh: emulated hosts, for tests of several hosts on one machine: hosts.sh COUNT COMMAND...
#
# Runs COMMAND on a host named controller, next to hosts named host1, host2, ..., each with a network, a hostname, processes, /dev/shm and
# System V IPC of its own (namespaces), joined by a bridge. `on host2 WORDS...` runs something on a host, `unplug host2` and `plug host2`
# take its link away and give it back, and `rsh_to_host host2 COMMAND LINE` replaces ssh. Ends with COMMAND's status; everything that was
# started on a host is killed. Exits with 77 where namespaces are not allowed.
set -u
if test "${1:-}" != --inside; then
  for program in ip unshare nsenter; do command -v $program >/dev/null || exit 77; done
  user=
  if test "$(id -u)" -ne 0; then user='--user --map-root-user'; fi
  unshare $user --net --uts --ipc --mount --pid --fork --mount-proc true 2>/dev/null || exit 77
  exec unshare $user --net --uts --ipc --mount --pid --fork --kill-child --mount-proc sh "$0" --inside "$@"
fi
shift
count=$1
shift
world=$(mktemp -d "${TMPDIR:-/tmp}/penstock-hosts.XXXXXX") || exit 77
trap 'rm -rf "$world"' EXIT
trap 'exit 130' INT TERM

echo '127.0.0.1 localhost' >"$world/hosts"
for i in $(seq "$count"); do echo "10.78.0.$i host$i"; done >>"$world/hosts"
echo '10.78.0.254 controller' >>"$world/hosts"
mount --bind "$world/hosts" /etc/hosts || exit 77
hostname controller
ip link set lo up
ip link add bridge0 type bridge && ip addr add 10.78.0.254/24 dev bridge0 && ip link set bridge0 up || exit 77
for i in $(seq "$count"); do
  mkfifo "$world/ready$i"
  unshare --net --uts --ipc --mount --pid --fork --kill-child --mount-proc sh -c \
    "hostname host$i; ip link set lo up; mount -t tmpfs tmpfs /dev/shm; echo >'$world/ready$i'; exec sleep 100000" &
  unshared=$!
  read -r _ <"$world/ready$i"
  process=$(tr -d ' ' <"/proc/$unshared/task/$unshared/children")
  echo "$process" >"$world/host$i"
  ip link add "port$i" type veth peer name net0 netns "$process" && ip link set "port$i" master bridge0 up || exit 77
  nsenter -t "$process" -n sh -c "ip addr add 10.78.0.$i/24 dev net0 && ip link set net0 up"
done

mkdir "$world/bin"
cat >"$world/bin/on" <<END
#!/bin/sh
process=\$(cat "$world/\$1")
shift
exec nsenter -t "\$process" --net --uts --ipc --mount --pid --wd="\$PWD" -- "\$@"
END
# As ssh: options, the host, then a command line for its shell.
cat >"$world/bin/rsh_to_host" <<END
#!/bin/sh
while :; do
  case \$1 in
    -[lop]) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
host=\$1
shift
exec "$world/bin/on" "\$host" sh -c "\$*"
END
printf '#!/bin/sh\nexec ip link set "port${1#host}" down\n' >"$world/bin/unplug"
printf '#!/bin/sh\nexec ip link set "port${1#host}" up\n' >"$world/bin/plug"
chmod +x "$world"/bin/*
PATH=$world/bin:$PATH "$@"
