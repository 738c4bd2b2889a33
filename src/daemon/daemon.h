/*
 * The daemon: a minimal program with root's rights that leases clocks and power limits to other
 * programs, and resets them at any end of these programs.
 *
 * The socket alone identifies a client: the kernel gives the user, groups and process of the peer,
 * a pidfd tracks its life, and its control group together with a grant by root gives its job
 * (daemon/daemon_peer.h). A file that root owns defines its rights (daemon/daemon_rules.h). A
 * client gets an exclusive lease of one knob of one GPU. A lease ends when it is released, with its
 * connection, with its process even if a child holds the socket, when it is not renewed within its
 * time to live, when the right to it is withdrawn, and with the daemon. Then the daemon resets the
 * knob: a limit to its former value, a clock to no lock, since NVML cannot report the former range.
 *
 * Leases are written to FOLDER/leases before any call of the driver. A daemon that finds leases of
 * a killed one resets those GPUs before it accepts clients.
 *
 * One thread serves clients (epoll) and one writes the audit log. Per GPU, one thread calls the
 * driver, with at most one pending target for each knob, the newest, and one reads sensors. So a
 * driver that hangs on one GPU delays no other GPU.
 */
#ifndef ERG_DAEMON_DAEMON_H
#define ERG_DAEMON_DAEMON_H

#include "daemon/daemon_peer.h"
#include "ergon/error.h"

/*
 * A client of another server of this process: its identity, and one end of a socket pair whose
 * other end that server holds. Its leases end with its process, not with silence.
 */
struct erg_daemon_guest {
    int fd, pidfd; /* owned and closed by the daemon */
    struct erg_daemon_peer peer;
};

struct erg_daemon_options {
    const char *config; /* the file of rules */
    const char *folder; /* of socket, leases, grants and lock; only this user may write to it */
    const char *socket; /* NULL: FOLDER/ergond.sock, or the one that the service manager passes */
    const char *proc;   /* "/proc" except in tests */
    int per_user;       /* connections of one user that is not root; 0: 16 */
    int idle_ms; /* silence after which a connection without lease may be closed; 0: 10,000 */
    int guests;  /* a pipe of struct erg_daemon_guest; 0: none */
    /* Called once clients are accepted, to open that other server; may be NULL. */
    int (*opened)(void *context, struct erg_error *err);
    void *context;
};

/*
 * Serves until SIGTERM or SIGINT, in the foreground. SIGHUP reads the rules again and reopens the
 * audit. ERG_NO_DEVICE without a GPU, ERG_FAILED if the file is invalid or another daemon runs.
 */
int erg_daemon_run(const struct erg_daemon_options *options, struct erg_error *err);

/* Ends the leases of a killed daemon, and exits. */
int erg_daemon_restore(const struct erg_daemon_options *options, struct erg_error *err);

#endif
