/*
 * The identity of the peer of a local socket, from the kernel: SO_PEERCRED and SO_PEERGROUPS
 * (socket(7)), a pidfd by SO_PEERPIDFD (Linux 6.5), otherwise by pidfd_open(2) and the start time
 * of the process. The peer's own claims are not used.
 */
#ifndef ERG_DAEMON_PEER_H
#define ERG_DAEMON_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { ERG_PEER_GROUPS = 256 };

struct erg_daemon_peer {
    pid_t pid;
    uid_t uid;
    gid_t groups[ERG_PEER_GROUPS]; /* the first is the primary one */
    size_t group_count;
    uint32_t job; /* Slurm's job; 0: none */
    char comm[32];
};

/* False if the process has ended or another one has its number now. *pidfd can be polled. */
bool erg_daemon_peer_of(int socket, const char *proc, struct erg_daemon_peer *peer, int *pidfd);

/* The current job of a process; 0 if it has ended, since its number may belong to another one. */
uint32_t erg_daemon_job_of_process(const char *proc, pid_t pid, int pidfd);

/* Whether the text of /proc/PID/stat describes a process that had started by `at_s` since boot. */
bool erg_daemon_had_begun(const char *stat, double at_s);

#endif
