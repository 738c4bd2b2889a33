/*
 * The daemon: the smallest program with root's rights that lets others have clocks and power
 * limits, and that takes them back however those others end.
 *
 * Who asks is known from the socket alone: user, groups and process of the peer as the kernel says
 * them, its life by a pidfd, its job by its control group together with a grant that root gave
 * (daemon/daemon_peer.h). What it may do stands in a file of root's (daemon/daemon_rules.h). What
 * it gets is a lease of one knob of one GPU, which nobody else has meanwhile. A lease ends when it
 * is released, with its connection, with its process even where a child holds the socket, when
 * nothing was heard for its time to live, when the right to it is withdrawn, and with the daemon.
 * Then the knob goes back: a limit to what it was, a clock to no lock, since NVML cannot tell what
 * range was there before.
 *
 * Leases are written to FOLDER/leases before the driver is asked for anything. A daemon that finds
 * leases of one that was killed takes those GPUs back before it accepts anybody.
 *
 * One thread speaks with clients (epoll), one per GPU asks
 * the driver and has at most one target pending for each knob, the newest, one per GPU reads
 * sensors, and one writes the audit. So a driver that hangs on one GPU delays nobody else.
 */
#ifndef ERG_DAEMON_DAEMON_H
#define ERG_DAEMON_DAEMON_H

#include "daemon/daemon_peer.h"
#include "ergon/error.h"

/* A client whom another server of this process speaks with: one end of a pair of sockets, whose
 * other end that server has, and who it is. Its leases end with its process, not with silence. */
struct erg_daemon_guest {
    int fd, pidfd; /* the daemon's, which closes them */
    struct erg_daemon_peer peer;
};

struct erg_daemon_options {
    const char *config; /* the file of rules */
    const char
        *folder; /* of socket, leases, grants and lock: of this user's, not others' to write */
    const char *socket; /* NULL: FOLDER/ergond.sock, or the one that the service manager passes */
    const char *proc;   /* "/proc" but for tests */
    int per_user;       /* connections of one user that is not root; 0: 16 */
    int idle_ms; /* silent for so long, one that holds nothing may have to make room; 0: 10,000 */
    int guests;  /* a pipe of struct erg_daemon_guest; 0: none */
    /* Called once clients are let in, to open that other server; may be NULL. */
    int (*opened)(void *context, struct erg_error *err);
    void *context;
};

/*
 * Serves until SIGTERM or SIGINT, in the foreground. SIGHUP reads the rules again and opens the
 * audit anew. ERG_NO_DEVICE where there is no GPU, ERG_FAILED where the file is wrong or another
 * daemon is there.
 */
int erg_daemon_run(const struct erg_daemon_options *options, struct erg_error *err);

/* Takes back what a daemon that was killed had lent, and ends. */
int erg_daemon_restore(const struct erg_daemon_options *options, struct erg_error *err);

#endif
