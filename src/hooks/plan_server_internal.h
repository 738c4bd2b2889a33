/* Shared by the files of the plan server only. */
#ifndef ERG_HOOKS_PLAN_SERVER_INTERNAL_H
#define ERG_HOOKS_PLAN_SERVER_INTERNAL_H

#include "hooks/plan_server.h"
#include "io/json.h"
#include "plan/plan.h"
#include "telemetry/clocks.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

enum {
    SERVER_METADATA_BYTES = 200,
    SERVER_ID_BYTES = SERVER_METADATA_BYTES + 128,
    SERVER_CLOCKS = 1000, /* of a GPU */
    SERVER_KINDS = 64,    /* of GPUs in a job, by their clocks */
};

/* ---- bodies ---- */

struct job_body {
    long pp, dp, tp, world;
    const char *metadata; /* NULL: none */
};

struct rank_body {
    long rank, dp, pp, tp;
    struct erg_clock_list clocks;
};

/* A JSON body while it is read; `key`: the part that a failure is about; "": the whole body. */
struct body {
    json_t *root;
    struct erg_json_place place;
    const char *key;
};

/* Each opens the body. Close it, even after a failure. */
int erg_body_read_job(struct body *body, struct job_body *job,
                      const struct erg_plan_question *question, struct erg_error *err);
int erg_body_read_rank(struct body *body, struct rank_body *rank,
                       const struct erg_plan_question *question, struct erg_error *err);
int erg_body_read_result(struct body *body, long *rank, const struct erg_plan_question *question,
                         struct erg_error *err);
void erg_body_close(struct body *body);

/* ---- jobs ---- */

struct server_rank {
    bool registered;
    uint16_t kind, dp, pp, tp;
    uint32_t results;                  /* number of results that it has reported */
    struct erg_plan_question *waiting; /* for its schedule; NULL: none */
};

struct server_job {
    char id[SERVER_ID_BYTES];
    long pp, dp, tp, world;
    struct server_rank *ranks; /* [world] */
    uint16_t *places;          /* [world]: 1 + the rank at (dp, pp, tp); 0: none */
    struct server_kind {
        struct erg_clock_list clocks;
        size_t ranks; /* ranks of this kind; 0: free */
    } kinds[SERVER_KINDS];
    size_t registered, waiting;
    int64_t asked_ns;
    struct erg_error trouble; /* why the plan does not fit; status 0: it fits */
};

struct erg_plan_server {
    struct erg_plan_server_options options;
    struct stat file; /* the plan that was last loaded or tried */
    struct erg_plan *plan;
    enum erg_method method;
    size_t point;
    struct server_job *jobs[ERG_PLAN_SERVER_JOBS]; /* NULL: free */
    time_t named;                                  /* time of the last job's name */
    unsigned in_second;                            /* jobs named in that second */
    struct erg_plan_question *first, *last;        /* answered and not taken */
};

/* {"detail": [{"loc": [where, key], …}]} for an invalid body or query, with status 422. */
void erg_plan_server_reject(struct erg_plan_question *question, const char *where, const char *key,
                            const struct erg_error *err);

/* Requests about jobs. */
struct server_job *erg_server_job_find(struct erg_plan_server *server, const char *id);
void erg_server_job_register(struct erg_plan_server *server, struct erg_plan_question *question,
                             int64_t now_ns);
void erg_server_rank_register(struct erg_plan_server *server, struct server_job *job,
                              struct erg_plan_question *question);
void erg_server_rank_schedule(struct erg_plan_server *server, struct server_job *job,
                              struct erg_plan_question *question);
void erg_server_rank_result(struct erg_plan_server *server, struct server_job *job,
                            struct erg_plan_question *question);

/* Call it when the plan has changed: answers waiting requests if it does not fit. */
void erg_server_job_recheck(struct erg_plan_server *server, struct server_job *job);

/* Answers the requests that wait for the job. */
void erg_server_job_turn_away(struct erg_plan_server *server, struct server_job *job,
                              unsigned status, const char *detail);
void erg_server_job_drop(struct erg_plan_server *server, struct server_job *job);

#endif
