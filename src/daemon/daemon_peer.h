/*
 * The identity of the peer of a local socket, from the kernel: SO_PEERCRED and SO_PEERGROUPS
 * (socket(7)), a pidfd by SO_PEERPIDFD (Linux 6.5) or else pidfd_open(2) and the start time of the
 * process. The peer's own claims are not used.
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
    uint32_t job; /* Slurm's, 0: of none */
    char comm[32];
};

/* False for a process that has ended, or whose number another one has now. *pidfd can be polled. */
bool erg_daemon_peer_of(int socket, const char *proc, struct erg_daemon_peer *peer, int *pidfd);

/* The job of a process now; 0 of one that has ended, whose number may be another's. */
uint32_t erg_daemon_job_of_process(const char *proc, pid_t pid, int pidfd);

/* Whether the text of /proc/PID/stat is of a process that had begun by `at_s` since boot. */
bool erg_daemon_had_begun(const char *stat, double at_s);

#endif
