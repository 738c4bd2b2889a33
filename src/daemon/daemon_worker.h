/*
 * The worker of a GPU: the thread that calls its driver for clients. For each knob it has at most
 * one waiting target; a newer one replaces it. It reports the result of each target to the thread
 * that set it. Both sides hold the lock only briefly, never during a driver's call.
 */
#ifndef ERG_DAEMON_WORKER_H
#define ERG_DAEMON_WORKER_H

#include "telemetry/daemon_wire.h"

struct erg_daemon_target {
    enum erg_daemon_task {
        ERG_TASK_NONE,
        ERG_TASK_PREPARE, /* before a lease: read the current limit */
        ERG_TASK_SET,
        ERG_TASK_RESET, /* to `high`; 0: to no lock */
    } task;
    int64_t low, high; /* MHz or mW */
    uint64_t lease;
    bool wait, look; /* the client waits for the answer; read the knob back */
    int connection;  /* the client's, with its generation and the sequence of its request */
    uint32_t generation, sequence;
    int64_t received_ns, due_ns; /* due: not earlier than that */
};

struct erg_daemon_outcome {
    enum erg_knob knob;
    struct erg_daemon_target target;
    bool superseded; /* the driver was not called */
    bool failed;
    int driver;
    int64_t begin_ns, end_ns, seen; /* seen: for PREPARE the limit, mW; for others if requested */
    char text[ERG_WIRE_TEXT];       /* why it failed */
};

struct erg_daemon_worker;

/*
 * `news` is an eventfd that each outcome is written to. `persist`: switches persistence mode on
 * while the worker runs. NULL: no thread could start.
 */
struct erg_daemon_worker *erg_daemon_worker_start(struct erg_gpus *gpus, size_t gpu, int news,
                                                  bool persist);

/* Sets a target. A waiting target that it replaces is reported as superseded. */
void erg_daemon_worker_give(struct erg_daemon_worker *worker, enum erg_knob knob,
                            const struct erg_daemon_target *target);

/* The waiting target; its task is ERG_TASK_NONE if there is none. */
struct erg_daemon_target erg_daemon_worker_waiting(struct erg_daemon_worker *worker,
                                                   enum erg_knob knob);

/* The next outcome; false if there is none. After each wake-up, call it until it returns false. */
bool erg_daemon_worker_take(struct erg_daemon_worker *worker, struct erg_daemon_outcome *outcome);

/* Duration of the driver's current call so far, ns; 0 between calls. */
int64_t erg_daemon_worker_busy_ns(struct erg_daemon_worker *worker);

/* Bounds of the GPU, read when the thread starts; NULL until then. */
const struct erg_knob_bounds *erg_daemon_worker_bounds(struct erg_daemon_worker *worker);

/* Ends the thread; leaves it behind if it hangs in the driver for another second. */
void erg_daemon_worker_stop(struct erg_daemon_worker *worker);

#endif
