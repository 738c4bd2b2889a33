/*
 * The folder of a live job, SPOOL/TOKEN, which belongs to the job's user: the request, the reports
 * of the trainer, and the plan that the controller writes for it.
 *
 *   request.json   the request; written once, by "ergon submit"
 *   profile.csv    optional: times and powers by shape (speed_table.h); by "ergon submit"
 *   reports.jsonl  one line per progress report; by the trainer or "ergon run-job"
 *   incarnation.N  made by the Nth incarnation when it starts; the highest may commit
 *   plan.json      shape, operating point and the policy's estimates; by the controller
 *   job.yaml       the job of "ergon train", or
 *   script         the user's program; by "ergon submit"
 *   job.plan.json  optional: a plan that the job runs by; by "ergon submit"
 *   job.N.yaml     job.yaml with the layout of an incarnation; by "ergon run-job"
 *   run            folder of the run of "ergon train"
 *   log            output of the batch script
 *
 * The controller treats everything except plan.json as hostile: sizes are limited, links are not
 * followed, invalid lines are skipped and counted, and the owner must be the job's user.
 */
#ifndef ERG_CLUSTER_LIVE_JOB_FOLDER_H
#define ERG_CLUSTER_LIVE_JOB_FOLDER_H

#include "base/memory.h"
#include "cluster/live/token.h"
#include "ergon/error.h"
#include "train/log/job_report.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct erg_live_request {
    const char *name;          /* of the job, for people */
    const char *family, *size; /* of its workload (job_trace.h) */
    long batch;                /* samples per iteration */
    double iterations;         /* at least 1 */
    double submitted_unix_s;
    double deadline_unix_s; /* INFINITY: none */
    double weight;          /* default: 1 */
    int gpus, gpus_most;    /* requested number; upper limit */
    const char *type;       /* GPU type; NULL: any */
    uid_t uid;
    bool has_profile;
    /* The command that "ergon run-job" starts: a program and its arguments. Without a program,
     * these are further options of "ergon train", which trains the folder's job.yaml. */
    bool trains, per_node; /* per_node: the program is started once per node, not once per GPU */
    const char **command;
    size_t command_count;
    const char *directory; /* working directory: that of the submission */
};

/* A random token. */
int erg_job_folder_token(char token[ERG_TOKEN_LENGTH + 1], struct erg_error *err);

/*
 * Makes SPOOL/TOKEN; free `folder`. If the spool has the setgid bit, its group may read and write;
 * otherwise only the user may.
 */
int erg_job_folder_make(char **folder, const char *spool, const char *token, struct erg_error *err);

/* Writes request.json, the last file of a submission: a folder without it is ignored. */
int erg_job_folder_write_request(const char *folder, const struct erg_live_request *request,
                                 struct erg_error *err);

/* Reads the request in a folder that must belong to `uid`; the arena owns its strings. */
int erg_job_folder_request(struct erg_live_request *request, const char *spool, const char *token,
                           uid_t uid, struct erg_arena *arena, struct erg_error *err);

/* The same from memory; `name` stands for the file in messages. */
int erg_job_folder_parse_request(struct erg_live_request *request, const char *name,
                                 const char *text, size_t length, struct erg_arena *arena,
                                 struct erg_error *err);

/* Returns the folder's profile.csv; free it. Its size is limited, and it is not trusted. */
int erg_job_folder_profile(char **text, size_t *length, const char *spool, const char *token,
                           uid_t uid, struct erg_error *err);

/* A number that changes when the folder, its request or its profile changes, appears or
 * vanishes. */
uint64_t erg_job_folder_stamp(const char *spool, const char *token, uid_t uid);

/* A report, as train/log/job_report.h writes it; missing values are NAN. */
struct erg_report {
    long incarnation; /* from 1 */
    enum erg_job_state state;
    double iteration;      /* iterations done */
    double iteration_s;    /* recent mean */
    double joules;         /* of this incarnation */
    double checkpoint;     /* iteration of the last one */
    double load_s, save_s; /* time of loading, and of the last saving */
    double mono_s;         /* the trainer's own clock: only differences are meaningful */
    long plan;             /* number of the plan that all its GPUs follow; 0: not reported */
};

/* The reports of a folder read so far; zero at first. */
struct erg_report_reader {
    off_t at;
    ino_t inode;
    bool skipping;          /* private: inside a line that is too long */
    size_t ignored;         /* invalid lines */
    char ignored_why[160];  /* reason for the first */
    struct erg_report last; /* of the highest incarnation; incarnation 0: none yet */
};

/* Reads appended reports; `fresh` is true if there were any. Reads at most 1 MiB per call; skips
 * lines without an end. */
int erg_job_folder_reports(struct erg_report_reader *reader, bool *fresh, const char *spool,
                           const char *token, uid_t uid, struct erg_error *err);

/* The same from memory, following the bytes before; returns the number of bytes in whole or skipped
 * lines. */
size_t erg_report_reader_add(struct erg_report_reader *reader, bool *fresh, const char *bytes,
                             size_t count);

/* The plan that the controller writes. */
struct erg_live_plan {
    long number; /* from 1, increasing; 0: none */
    const char *type;
    int nodes, gpus_per_node;
    int point;          /* 0: the fastest */
    double slowdown;    /* compared with the fastest point */
    double power_w;     /* per GPU */
    bool capped;        /* under a power cap: power_w is the upper limit of the mean power */
    double iteration_s; /* expected at that point; NAN: unknown */
    const char *layout; /* "t=2,p=4,…", as of "ergon layout"; NULL: not given */
};

/* Writes the plan into a user's folder and renames it; never follows a link. */
int erg_job_folder_plan(const char *spool, const char *token, uid_t uid,
                        const struct erg_live_plan *plan, struct erg_error *err);

/* Reads the plan of a controller: returns 1, or 0 if there is none. A file of another user is an
 * error. */
int erg_job_folder_find_plan(struct erg_live_plan *plan, const char *spool, const char *token,
                             uid_t uid, struct erg_arena *arena, struct erg_error *err);

/* The same in one's own folder; `type` is NULL if there is no plan yet. */
int erg_job_folder_read_plan(struct erg_live_plan *plan, const char *folder,
                             struct erg_arena *arena, struct erg_error *err);

#endif
