/*
 * The worker of a GPU: the thread that calls its driver for clients. For each knob it has at most
 * one waiting target; a newer one replaces it. It reports the result of each target to the thread
 * that set it. Both sides hold the lock for moments only, never during a driver's call.
 */
#ifndef ERG_DAEMON_WORKER_H
#define ERG_DAEMON_WORKER_H

#include "telemetry/daemon_wire.h"

struct erg_daemon_target {
    enum erg_daemon_task {
        ERG_TASK_NONE,
        ERG_TASK_PREPARE, /* before a lease: read the present limit */
        ERG_TASK_SET,
        ERG_TASK_RESET, /* to `high`, or to no lock where that is 0 */
    } task;
    int64_t low, high; /* MHz or mW */
    uint64_t lease;
    bool wait, look; /* the client waits for the answer; read the knob back */
    int connection;  /* whose, with its generation and the sequence of its request */
    uint32_t generation, sequence;
    int64_t received_ns, due_ns; /* not before that */
};

struct erg_daemon_outcome {
    enum erg_knob knob;
    struct erg_daemon_target target;
    bool superseded; /* the driver was not asked */
    bool failed;
    int driver;
    int64_t begin_ns, end_ns, seen; /* seen: of PREPARE the limit, mW; else if it was requested */
    char text[ERG_WIRE_TEXT];       /* why it failed */
};

struct erg_daemon_worker;

/* `news` is an eventfd that is written to whenever there is an outcome. `persist`: persistence mode
 * is switched on while it works. NULL: no thread. */
struct erg_daemon_worker *erg_daemon_worker_start(struct erg_gpus *gpus, size_t gpu, int news,
                                                  bool persist);

/* Sets a target. A waiting target that it replaces is reported as superseded. */
void erg_daemon_worker_give(struct erg_daemon_worker *worker, enum erg_knob knob,
                            const struct erg_daemon_target *target);

/* The target that waits for its time, of ERG_TASK_NONE where none does. */
struct erg_daemon_target erg_daemon_worker_waiting(struct erg_daemon_worker *worker,
                                                   enum erg_knob knob);

/* The next outcome; false where there is none. To be asked until then after each news. */
bool erg_daemon_worker_take(struct erg_daemon_worker *worker, struct erg_daemon_outcome *outcome);

/* How long the present call of the driver has taken, ns; 0 between calls. */
int64_t erg_daemon_worker_busy_ns(struct erg_daemon_worker *worker);

/* Bounds of the GPU, read when the thread starts; NULL until then. */
const struct erg_knob_bounds *erg_daemon_worker_bounds(struct erg_daemon_worker *worker);

/* Ends the thread; one that hangs in the driver for a second more is left behind. */
void erg_daemon_worker_stop(struct erg_daemon_worker *worker);

#endif
