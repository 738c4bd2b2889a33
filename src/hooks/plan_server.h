/*
 * Plan server: other trainers get the planned clock of each pass over HTTP, in the protocol of
 * Perseus, which Zeus' PipelineFrequencyOptimizer uses.
 *
 * A trainer registers a job, then each of its ranks with the clocks of its GPU; then each rank asks
 * for its schedule, which is that of its pipeline stage, and may report results. A request for a
 * schedule waits until all ranks have registered. This room has no sockets: it receives requests,
 * and reports when waiting ones are answered. One thread at a time; no call blocks.
 *
 * The plan is loaded again when its file changes: erg_plan_server_tick() checks. Waiting requests
 * fail immediately if the plan does not fit their job.
 *
 * Source of the protocol: Zeus 0.16.0, optimizer/pipeline_frequency; the code notes answers that
 * differ.
 */
#ifndef ERG_HOOKS_PLAN_SERVER_H
#define ERG_HOOKS_PLAN_SERVER_H

#include "base/text.h"
#include "ergon/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    ERG_PLAN_SERVER_JOBS = 64,     /* a further job replaces the one that has been idle longest */
    ERG_PLAN_SERVER_RANKS = 16384, /* of a job */
    ERG_PLAN_SERVER_BODY_BYTES = 1 << 20, /* longer bodies are refused */
    ERG_PLAN_SERVER_IDLE_S = 7 * 24 * 3600,
};

struct erg_plan_server;

struct erg_plan_server_options {
    const char *plan; /* path of plan.json */
    /* The number of the point, from 1; 0: the selected one of sequential+clocks, or the fastest. */
    size_t number;
    /* A folder to create for the results of ranks; NULL: results are not stored. */
    const char *record;
};

/* One HTTP request and its answer. The caller owns it and keeps it until it is answered. */
struct erg_plan_question {
    const char *method, *path; /* "POST", "/register_rank/JOB"; unescaped, without the query */
    const char *rank;          /* from the query; NULL: none */
    const char *body;          /* [body_bytes] */
    size_t body_bytes;

    unsigned status;        /* HTTP status; 0: the question waits */
    const char *allow;      /* with status 405; otherwise NULL */
    struct erg_text answer; /* JSON; the caller releases it */

    struct erg_plan_question *next; /* private */
};

/*
 * Fails if the plan is invalid or has no clocks that another trainer can follow, or if the folder
 * of results cannot be created. The caller keeps the options' texts.
 */
int erg_plan_server_open(struct erg_plan_server **server,
                         const struct erg_plan_server_options *options, struct erg_error *err);

void erg_plan_server_close(struct erg_plan_server *server);

/*
 * Tells all waiting questions that there will be no schedule. Call it, and take their answers,
 * before the close.
 */
void erg_plan_server_end(struct erg_plan_server *server);

/* Answers, or keeps the question (status 0) until erg_plan_server_take() returns it. now_ns: of
 * erg_now_ns(). */
void erg_plan_server_ask(struct erg_plan_server *server, struct erg_plan_question *question,
                         int64_t now_ns);

/* The next question that waited and is now answered; NULL: none. */
struct erg_plan_question *erg_plan_server_take(struct erg_plan_server *server);

/* Cancels a waiting request. */
void erg_plan_server_forget(struct erg_plan_server *server, struct erg_plan_question *question);

/* Call it about once a second: it loads the plan again if its file has changed, and drops idle
 * jobs. If the file is no longer a valid plan, this is logged and the current plan stays. */
void erg_plan_server_tick(struct erg_plan_server *server, int64_t now_ns);

/* Answers with an error: {"detail": "…"}. */
void erg_plan_server_fail(struct erg_plan_question *question, unsigned status, const char *detail);

#endif
