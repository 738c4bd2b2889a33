/* Identifies the process at the other end of a local socket. */
#define _GNU_SOURCE /* struct ucred */
#include "daemon/daemon_peer.h"

#include "base/text.h"
#include "io/file.h"
#include "launch/slurm_cgroup.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; the same on all machines that have GPUs of these kinds */
#endif

/* Reads PROC/PID/name; false if it is missing or too long. */
static bool read_proc(const char *proc, pid_t pid, const char *name, char *text, size_t capacity)
{
    char path[512], *whole;
    snprintf(path, sizeof path, "%s/%ld/%s", proc, (long)pid, name);
    if (erg_file_read(path, capacity - 1, &whole, NULL, NULL) != 0)
        return false;
    snprintf(text, capacity, "%s", whole);
    free(whole);
    return true;
}

bool erg_daemon_had_begun(const char *stat, double at_s)
{
    /*
     * The third field follows the name, which may contain any character; the start time is the
     * 22nd.
     */
    const char *at = strrchr(stat, ')');
    unsigned long long ticks;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, " %llu", &ticks) == 1 &&
           (double)ticks / (double)sysconf(_SC_CLK_TCK) <= at_s;
}

/*
 * For a kernel without SO_PEERPIDFD: checks that the process number does not belong to another
 * process by now.
 */
static int open_by_number(pid_t pid, const char *proc)
{
    char stat[2048];
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd >= 0 &&
        (!read_proc(proc, pid, "stat", stat, sizeof stat) ||
         !erg_daemon_had_begun(stat, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec))) {
        close(pidfd);
        pidfd = -1;
    }
    return pidfd;
}

static bool has_ended(int pidfd)
{
    struct pollfd wait = {.fd = pidfd, .events = POLLIN};
    return poll(&wait, 1, 0) != 0;
}

/* A process that is alive after the read kept its number, so the files were its own. */
uint32_t erg_daemon_job_of_process(const char *proc, pid_t pid, int pidfd)
{
    char text[8192];
    bool read = read_proc(proc, pid, "cgroup", text, sizeof text) && !has_ended(pidfd);
    return read ? erg_slurm_job_of(text) : 0;
}

bool erg_daemon_peer_of(int socket, const char *proc, struct erg_daemon_peer *peer, int *pidfd)
{
    struct ucred said;
    socklen_t size = sizeof said, pidfd_size = sizeof *pidfd;
    memset(peer, 0, sizeof *peer);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &said, &size) != 0 || said.pid <= 0)
        return false;
    *pidfd = -1;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, pidfd, &pidfd_size) != 0)
        *pidfd = errno == ENOPROTOOPT ? open_by_number(said.pid, proc) : -1;
    if (*pidfd < 0)
        return false;
    peer->pid = said.pid;
    peer->uid = said.uid;
    peer->groups[0] = said.gid;
    peer->group_count = 1;
    /* With more groups than fit, only the primary one counts. */
    size = (socklen_t)(sizeof peer->groups - sizeof *peer->groups);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, peer->groups + 1, &size) == 0)
        peer->group_count += size / sizeof *peer->groups;
    peer->job = erg_daemon_job_of_process(proc, peer->pid, *pidfd);
    if (!read_proc(proc, peer->pid, "comm", peer->comm, sizeof peer->comm))
        peer->comm[0] = '\0';
    peer->comm[strcspn(peer->comm, "\n")] = '\0';
    erg_utf8_repair(peer->comm, sizeof peer->comm);
    if (!has_ended(*pidfd))
        return true;
    close(*pidfd);
    return false;
}
