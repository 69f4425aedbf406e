#!/bin/sh
# hosts.sh: emulated hosts, for tests of several hosts on one machine: hosts.sh COUNT COMMAND...
#
# Runs COMMAND next to hosts named host1, host2, ..., each with a network, a hostname and System V IPC of its own (namespaces), joined by
# a bridge. `on host2 WORDS...` runs something on a host, `unplug host2` and `plug host2` take its link away and give it back. Ends with
# COMMAND's status; everything that was started on a host is killed. Exits with 77 where namespaces are not allowed.
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
mount --bind "$world/hosts" /etc/hosts || exit 77
ip link set lo up
ip link add bridge0 type bridge && ip link set bridge0 up || exit 77
for i in $(seq "$count"); do
  mkfifo "$world/ready$i"
  unshare --net --uts --ipc sh -c "hostname host$i; ip link set lo up; echo \$\$ >'$world/ready$i'; exec sleep 100000" &
  read -r process <"$world/ready$i"
  echo "$process" >"$world/host$i"
  ip link add "port$i" type veth peer name net0 netns "$process" && ip link set "port$i" master bridge0 up || exit 77
  nsenter -t "$process" -n sh -c "ip addr add 10.78.0.$i/24 dev net0 && ip link set net0 up"
done

mkdir "$world/bin"
cat >"$world/bin/on" <<END
#!/bin/sh
process=\$(cat "$world/\$1")
shift
exec nsenter -t "\$process" --net --uts --ipc -- "\$@"
END
printf '#!/bin/sh\nexec ip link set "port${1#host}" down\n' >"$world/bin/unplug"
printf '#!/bin/sh\nexec ip link set "port${1#host}" up\n' >"$world/bin/plug"
chmod +x "$world"/bin/*
PATH=$world/bin:$PATH "$@"
