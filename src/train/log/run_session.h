/*
 * Run sessions: RUN/sessions.jsonl, a line for each start of a run. It contains the data that a
 * run's log does not repeat in every line: the device, the model, the layout and the machine. A
 * continued run may have another layout than before.
 *
 * A line applies to the steps after `behind`, until a later line does.
 */
#ifndef ERG_TRAIN_LOG_RUN_SESSION_H
#define ERG_TRAIN_LOG_RUN_SESSION_H

#include "base/memory.h"
#include "ergon/error.h"
#include "hardware/hardware.h"
#include "job/layout.h"

#include <stdbool.h>
#include <stddef.h>

struct erg_run_about;

extern const char erg_run_sessions_name[]; /* of the file */

/* NULL: unknown. */
struct erg_run_session {
    long behind; /* the step after which it continues; 0: none */
    double time_unix_s;
    const char *ergon_version, *host;
    const char *device; /* CUDA's name of the GPU, or "host" */
    const char *type;   /* of weights in use: "bfloat16" */
    long ranks;
    bool sequence_parallel;
    const char *plan_method; /* of the plan that it follows; NULL: none */
    long plan_point;         /* from 1; 0: none */
    struct erg_layout layout;
    long kinds; /* kinds of GPUs in the job's cluster; the values below are of the first */
    struct {
        long nodes, gpus_per_node;
        const char *gpu; /* a name of the catalogue, or the path of a file */
        /* bytes/s as in struct erg_cluster */
        double intra_node_bandwidth, inter_node_bandwidth, host_memory_bandwidth,
            shared_link_bandwidth;
        long adapters_per_node; /* 0: 0: every GPU has its own share */
    } cluster;
    const char *model;  /* its name */
    const char *config; /* its config.json, with the job's changes */
    bool tied;
    long vocabulary, words;
    size_t layer_count, recompute_count, offload_count; /* private: sizes of the layout's lists */
};

struct erg_run_sessions {
    struct erg_run_session *items;
    size_t count, capacity;
    size_t left_out; /* number of invalid lines */
    struct erg_arena arena;
};

/*
 * Adds the line of the run that `about` describes; if the run begins from scratch, removes earlier
 * lines.
 */
int erg_run_session_add(const struct erg_run_about *about, double time_unix_s,
                        struct erg_error *err);

/*
 * The sessions in a text; `name` is the file's name in messages. Skips invalid lines, such as half
 * a line left by a killed run. Fails if no line is valid. Release them, even after a failure.
 */
int erg_run_sessions_parse(struct erg_run_sessions *sessions, const char *name, const char *text,
                           struct erg_error *err);
void erg_run_sessions_release(struct erg_run_sessions *sessions);

/* The index of the session that made a step; `count`: none. */
size_t erg_run_sessions_find(const struct erg_run_sessions *sessions, double step);

/* Whether two sessions had the same layout and devices, so that their steps take equally long. */
bool erg_run_sessions_are_alike(const struct erg_run_session *a, const struct erg_run_session *b);

#endif
