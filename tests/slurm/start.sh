#!/usr/bin/env bash
# Starts a Slurm of two nodes on this machine, for the tests: as root, with slurm-wlm and munge installed. One that
# answers already is left as it is. Nothing is limited or kept; each node pretends to have eight cores and four GPUs.
set -euo pipefail
if timeout 5 sinfo -h >/dev/null 2>&1; then
    exit 0
fi
host=$(hostname -s)
state=/var/spool/fedqcl-slurm
install -d "$state" /run/munge /run/fedqcl-gpus
chown munge:munge /run/munge
if [ ! -s /etc/munge/munge.key ]; then
    install -d -o munge -g munge -m 0700 /etc/munge
    head -c 1024 /dev/urandom >/etc/munge/munge.key
    chown munge:munge /etc/munge/munge.key
    chmod 400 /etc/munge/munge.key
fi
pgrep -x munged >/dev/null || runuser -u munge -- munged

grep -q ' n1 n2$' /etc/hosts || echo "127.0.0.1 n1 n2" >>/etc/hosts # ranks look for the first node by its name
for gpu in n1-{0..3} n2-{0..3}; do
    [ -e "/run/fedqcl-gpus/$gpu" ] || mknod "/run/fedqcl-gpus/$gpu" c 1 3
done
for node in n1 n2; do
    echo "NodeName=$node Name=gpu File=/run/fedqcl-gpus/$node-[0-3]"
done >/etc/slurm/gres.conf
cat >/etc/slurm/slurm.conf <<CONF
ClusterName=ci
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=5
JobRequeue=1
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,requeue_delay=1
SlurmdParameters=config_overrides
StateSaveLocation=$state
SlurmdSpoolDir=$state-%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/slurmd-%n.log
GresTypes=gpu
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=8 CoresPerSocket=8 Gres=gpu:4
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
CONF
slurmctld
slurmd -N n1
slurmd -N n2
for _ in $(seq 100); do
    [ "$(sinfo -h -o %T)" = idle ] && exit 0
    sleep 0.1
done
echo "Slurm does not get ready: $(sinfo -h -o '%N %T')" >&2
exit 1
