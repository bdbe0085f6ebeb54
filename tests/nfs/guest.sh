# The first process of the guest: a file server, and two clients of it, each with a network and a name of its own.
# $1 the unpacked packages, $2 the repository, $3 the Python, $4 the folder for results, $5… the cases: a protocol version
# each, or one with the milliseconds that each answer of the server is late, such as 4.2:0.5.
tree=$1 repository=$2 python=$3 results=$4
shift 4
export PATH="$tree/usr/sbin:$tree/usr/bin:$tree/sbin:$tree/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export LD_LIBRARY_PATH="$tree/usr/lib/x86_64-linux-gnu:$tree/lib/x86_64-linux-gnu"
export PYTHONPATH="$repository:$repository/sidecar:$repository/formats" PYTHONDONTWRITEBYTECODE=1 HOME=/root
trap '' INT
cd "$repository" || exit

finish() {
    sync
    /root/busybox poweroff -f
}

hostname server
ip link set lo up
mkdir -p /srv/share /mnt/share /var/run
mount -t tmpfs -o size=25% share /srv/share
mount -t nfsd nfsd /proc/fs/nfsd
touch /var/lib/nfs/etab
rpcbind
exportfs -i -o rw,no_root_squash,fsid=0,insecure,no_subtree_check 10.0.0.0/8:/srv/share
rpc.nfsd --grace-time 10 --lease-time 10 8
rpc.mountd

for number in 1 2; do
    unshare --net --uts --mount sleep 100000 &
    echo $! > /run/client$number
    sleep 0.2
    pid=$(cat /run/client$number)
    ip link add "server$number" type veth peer name net0 netns "$pid"
    ip address add "10.0.$number.1/24" dev "server$number"
    ip link set "server$number" up
    nsenter -t "$pid" -n -u -m sh -c "
        hostname client$number
        ip link set lo up
        ip address add 10.0.$number.2/24 dev net0
        ip link set net0 up"
done

for case in "$@"; do
    version=${case%%:*}
    delay=${case#"$version"}
    for number in 1 2; do
        [ -z "$delay" ] || tc qdisc add dev "server$number" root netem delay "${delay#:}ms" || finish
        path=/srv/share
        [ "$version" = 3 ] && locks=nolock || { locks=lock; path=/; }
        nsenter -t "$(cat /run/client$number)" -n -u -m \
            mount.nfs "10.0.$number.1:$path" /mnt/share -o "vers=$version,$locks,nosharecache" || finish
    done
    "$python" -m tests.nfs.scenario "$case" "$results" > "$results/scenario-$case.txt" 2>&1
    echo "case $case: exit code $?"
    for number in 1 2; do
        [ -z "$delay" ] || tc qdisc del dev "server$number" root
        nsenter -t "$(cat /run/client$number)" -n -u -m umount -f /mnt/share
    done
done
finish
