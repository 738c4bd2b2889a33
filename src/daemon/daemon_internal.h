/*
 * Declarations shared by the parts of the daemon. Everything belongs to the thread that serves
 * clients, except where noted. Private to the room.
 */
#ifndef ERG_DAEMON_INTERNAL_H
#define ERG_DAEMON_INTERNAL_H

#include "base/text.h"
#include "daemon/daemon.h"
#include "daemon/daemon_audit.h"
#include "daemon/daemon_rules.h"
#include "daemon/daemon_worker.h"
#include "telemetry/sampler.h"

#include <pthread.h>

enum {
    ERG_DAEMON_CONNECTIONS = 256,
    ERG_DAEMON_FOR_ROOT = 16, /* reserved for root, so that a prolog can always connect */
    ERG_DAEMON_PER_USER = 16,
    ERG_DAEMON_IDLE_MS = 10000,
};

struct erg_daemon_connection {
    int fd, pidfd; /* fd -1: free */
    uint32_t generation;
    bool doomed; /* closed after the current work */
    struct erg_daemon_peer peer;
    int64_t heard_ns;
    uint64_t metrics; /* subscribed metrics; 0: none */
    int64_t period_ns, next_ns;
    uint32_t lost;
    bool guest; /* a client of another server, which may be silent */
};

/* A client that waits for the answer to a LEASE. */
struct erg_daemon_asker {
    int connection; /* -1: none */
    uint32_t generation, sequence;
    int64_t ttl_ns;
};

struct erg_daemon_lease {
    enum erg_lease_state {
        ERG_LEASE_FREE,
        ERG_LEASE_BEGINS, /* the worker reads the former value */
        ERG_LEASE_HELD,
        ERG_LEASE_ENDS, /* the worker resets it */
    } state;
    uint64_t id;
    struct erg_daemon_asker owner, waiter;
    struct erg_daemon_peer peer;
    int64_t least, most, begin_ns, ttl_ns, before_mw;
    bool touched, left_behind; /* the driver was called for it; not reset yet */
    bool told;                 /* the audit has its begin, and must get its end */
    int tries;
    const char *reason; /* why it ended; a literal */
    uint64_t changes, superseded, limited;
    int64_t low, high; /* lowest and highest of all changes */
    double sum;
    int64_t rate_ns, begins_ns; /* paces of changes and of leases; kept after the lease */
};

struct erg_daemon_gpu {
    struct erg_daemon_worker *worker;
    struct erg_daemon_lease leases[ERG_KNOBS];
    int claim; /* telemetry/claim.h, -1: not held */
    bool lost;
    int64_t told_ns, leases_ns; /* paces of the audit for changes and leases */
};

struct erg_daemon {
    const struct erg_daemon_options *options;
    struct erg_daemon_config config;
    /*
     * A thread reads the file of rules again, and owns the next four members until the state is
     * READ.
     */
    enum erg_rules_state { ERG_RULES_STAY, ERG_RULES_READING, ERG_RULES_READ } rules_state;
    pthread_t rules_reader;
    struct erg_daemon_config rules;
    struct erg_error rules_error;
    bool rules_failed,
        rules_asked; /* asked: requested again in the meantime; not used by the thread */
    struct erg_daemon_audit *audit;
    struct erg_gpus *gpus;
    struct erg_sampler *sampler;
    struct erg_daemon_gpu *items; /* per GPU */
    size_t count;
    struct erg_daemon_grant grants[ERG_DAEMON_GRANTS];
    struct erg_daemon_connection connections[ERG_DAEMON_CONNECTIONS];
    size_t used;               /* all connections from this index on are free */
    struct erg_text elsewhere; /* lines of leases for absent GPUs */
    int epoll, news, signals, listener, lock;
    bool activated, restoring, stop;
    unsigned char id[16];
    uint64_t next_lease;
    int64_t rate_ns, refusals_ns, looked_ns; /* looked: the last check for lost GPUs */
    struct erg_wire_writer writer;           /* for the current answer */
    pthread_mutex_t readings_lock;
    /* The latest of each GPU; written by the sampler, under the lock. */
    struct erg_gpu_sample *readings;
};

/* ---- daemon_run.c: connections ---- */

/*
 * Sends the writer's packet. A client that does not read its answers is doomed; one that does not
 * read samples only loses them.
 */
bool erg_daemon_send(struct erg_daemon *daemon, struct erg_daemon_connection *to, bool sample);

/* The connection of an asker; NULL if it has ended. */
struct erg_daemon_connection *erg_daemon_asker_of(struct erg_daemon *daemon,
                                                  const struct erg_daemon_asker *asker);

/* ---- daemon_requests.c ---- */

void erg_daemon_answer(struct erg_daemon *daemon, struct erg_daemon_connection *to,
                       const struct erg_wire_request *request, enum erg_wire_status status,
                       int driver, const char *format, ...) ERG_PRINTF(6, 7);
void erg_daemon_request(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                        const void *bytes, size_t count, int64_t received_ns);

/* ---- daemon_readings.c ---- */

int erg_daemon_readings_start(struct erg_daemon *daemon, struct erg_error *err);
void erg_daemon_readings_stop(struct erg_daemon *daemon);
void erg_daemon_read(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                     const struct erg_wire_request *request);
void erg_daemon_subscribe(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                          const struct erg_wire_request *request);
/* Sends the readings that are due, and returns the time of the next. */
int64_t erg_daemon_publish(struct erg_daemon *daemon, int64_t now_ns);

/* ---- daemon_lease_begin.c and daemon_leases.c ---- */

/* Gives a free knob to an asker that is still connected. */
void erg_daemon_lease_begin(struct erg_daemon *daemon, size_t gpu, enum erg_knob knob,
                            const struct erg_daemon_asker *asker);
/* Handles the result of PREPARE. */
void erg_daemon_lease_begun(struct erg_daemon *daemon, size_t gpu,
                            const struct erg_daemon_outcome *outcome);
/* Releases the GPU's claim if none of its knobs is leased. */
void erg_daemon_release_claim(struct erg_daemon_gpu *item);
/* The part of a rule's bounds that the GPU supports; false if there is none. */
bool erg_daemon_bounds_of(const struct erg_daemon_rule *rule, const struct erg_knob_bounds *bounds,
                          enum erg_knob knob, int64_t *least, int64_t *most);

void erg_daemon_lease_ask(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                          const struct erg_wire_request *request);
/* Handles CLOCK and POWER. */
void erg_daemon_lease_set(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                          const struct erg_wire_request *request, int64_t received_ns);
void erg_daemon_lease_reset(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                            const struct erg_wire_request *request, int64_t received_ns);

/* The lease with this number that the connection holds; NULL, after a refusal, if there is none. */
struct erg_daemon_lease *erg_daemon_lease_of(struct erg_daemon *daemon,
                                             struct erg_daemon_connection *from,
                                             const struct erg_wire_request *request, size_t *gpu,
                                             enum erg_knob *knob);

/* Ends a lease; `event` (enum erg_wire_reason, 0: none) is sent to its holder. */
void erg_daemon_lease_end(struct erg_daemon *daemon, size_t gpu, enum erg_knob knob, unsigned event,
                          const char *reason);
void erg_daemon_leases_end_of(struct erg_daemon *daemon, const struct erg_daemon_connection *owner,
                              const char *reason);
/* Ends leases that no rule allows any more. */
void erg_daemon_leases_judge(struct erg_daemon *daemon, const char *reason);
/* Ends leases whose time is over, and returns the end of the next one. */
int64_t erg_daemon_leases_expire(struct erg_daemon *daemon, int64_t now_ns);
/* Handles the results of workers since the last call. */
void erg_daemon_leases_outcomes(struct erg_daemon *daemon);
/* Whether a connection has a lease or waits for one. */
bool erg_daemon_has_lease(struct erg_daemon *daemon, const struct erg_daemon_connection *who);
/* Whether no knob is leased or being reset. */
bool erg_daemon_leases_are_free(const struct erg_daemon *daemon);
/* Resets a knob that an earlier daemon had leased. */
void erg_daemon_lease_restore(struct erg_daemon *daemon, size_t gpu, enum erg_knob knob,
                              int64_t before_mw);

/* ---- daemon_files.c: files that outlive a killed daemon ---- */

/* Takes the lock that only one daemon can hold; creates a missing folder. */
int erg_daemon_files_lock(struct erg_daemon *daemon, struct erg_error *err);
/* Replaces FOLDER/leases or FOLDER/grants in one step. */
bool erg_daemon_files_write_leases(const struct erg_daemon *daemon);
bool erg_daemon_files_write_grants(const struct erg_daemon *daemon);
/* Reads both. Starts to reset the leased knobs of present GPUs; keeps the leases of absent ones. */
int erg_daemon_files_read(struct erg_daemon *daemon, struct erg_error *err);

#endif
