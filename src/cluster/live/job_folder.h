/*
 * The folder of a live job, SPOOL/TOKEN, which belongs to the job's user: what was asked for, what
 * its trainer reports, and the plan that the controller leaves for it.
 *
 *   request.json   what was asked for; written once, by "ergon submit"
 *   profile.csv    times and powers by shape (speed_table.h), if it was made; by "ergon submit"
 *   reports.jsonl  a line of progress each; appended by the trainer or "ergon run-job"
 *   incarnation.N  made by the Nth incarnation when it begins; the highest may commit
 *   plan.json      shape, operating point and what the policy expects; by the controller
 *   job.yaml       what "ergon train" trains, or
 *   script         what the user runs instead, where it is one; by "ergon submit"
 *   job.N.yaml     the former with the layout of an incarnation; by "ergon run-job"
 *   run            folder of the run of "ergon train"
 *   log            of the batch script
 *
 * The controller takes all of it but plan.json for hostile: sizes are bounded, links are not
 * followed, wrong lines are ignored and counted, and the folder's owner must be the job's user.
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
    long batch;                /* samples of an iteration */
    double iterations;         /* at least 1 */
    double submitted_unix_s;
    double deadline_unix_s; /* INFINITY: none */
    double weight;          /* 1: as others */
    int gpus, gpus_most;    /* asked for; never more than */
    const char *type;       /* of GPU; NULL: any */
    uid_t uid;
    bool has_profile;
    /* What "ergon run-job" starts: a program and its arguments; or with none of them "ergon train"
     * on the folder's job.yaml, and these are further options. */
    bool trains,
        per_node; /* per_node: the program is started once on each node, not for each GPU */
    const char **command;
    size_t command_count;
    const char *directory; /* where it runs: that of the submission */
};

/* A token of random bits. */
int erg_job_folder_token(char token[ERG_TOKEN_LENGTH + 1], struct erg_error *err);

/*
 * Makes SPOOL/TOKEN; `folder` is to be freed. Where the spool hands its group down (its mode has
 * the bit setgid), that group may read and write; else nobody but the user.
 */
int erg_job_folder_make(char **folder, const char *spool, const char *token, struct erg_error *err);

/* Writes request.json, the last that is written: a folder without it is no job's yet. */
int erg_job_folder_write_request(const char *folder, const struct erg_live_request *request,
                                 struct erg_error *err);

/* Reads the request of a folder that must belong to `uid`; strings are put into the arena. */
int erg_job_folder_request(struct erg_live_request *request, const char *spool, const char *token,
                           uid_t uid, struct erg_arena *arena, struct erg_error *err);

/* The same of bytes; `name` stands for the file in messages. */
int erg_job_folder_parse_request(struct erg_live_request *request, const char *name,
                                 const char *text, size_t length, struct erg_arena *arena,
                                 struct erg_error *err);

/* The folder's profile.csv, to be freed: bounded and as untrusted as the rest. */
int erg_job_folder_profile(char **text, size_t *length, const char *spool, const char *token,
                           uid_t uid, struct erg_error *err);

/* A number that becomes another one when the folder, its request or its profile do, or come or
 * go. */
uint64_t erg_job_folder_stamp(const char *spool, const char *token, uid_t uid);

/* A report, as train/log/job_report.h writes it; what one does not say is NAN. */
struct erg_report {
    long incarnation; /* from 1 */
    enum erg_job_state state;
    double iteration;      /* done */
    double iteration_s;    /* of late */
    double joules;         /* of this incarnation */
    double checkpoint;     /* the last one's iteration */
    double load_s, save_s; /* how long loading and the last saving took */
    double mono_s;         /* of the trainer's own clock: only for differences */
    long plan;             /* number of the plan that all its GPUs follow; 0: it does not say */
};

/* What has been read of a folder's reports so far; empty at first. */
struct erg_report_reader {
    off_t at;
    ino_t inode;
    bool skipping;          /* private: inside of a line that is too long */
    size_t ignored;         /* lines that were no reports */
    char ignored_why[160];  /* of the first such */
    struct erg_report last; /* of the highest incarnation; incarnation 0: none yet */
};

/* Reads what was appended since; `fresh` says whether there was a report. Bounded: at most 1 MiB at
 * a time; an endless line is skipped. */
int erg_job_folder_reports(struct erg_report_reader *reader, bool *fresh, const char *spool,
                           const char *token, uid_t uid, struct erg_error *err);

/* The same of bytes that follow those before; says how many of them are whole lines, or are
 * skipped.
 */
size_t erg_report_reader_add(struct erg_report_reader *reader, bool *fresh, const char *bytes,
                             size_t count);

/* What the controller leaves. */
struct erg_live_plan {
    long number; /* from 1; each that is written has a higher one. 0: it has none */
    const char *type;
    int nodes, gpus_per_node;
    int point;          /* 0: the fastest */
    double slowdown;    /* against the fastest point */
    double power_w;     /* of one GPU */
    bool capped;        /* under a power cap: power_w is the most that it may draw on the mean */
    double iteration_s; /* expected at that point; NAN: not known */
    const char *layout; /* "t=2,p=4,…" as "ergon layout" has it; NULL: not said */
};

/* By rename into a folder of a user's: never through a link. */
int erg_job_folder_plan(const char *spool, const char *token, uid_t uid,
                        const struct erg_live_plan *plan, struct erg_error *err);

/* What a controller has left: 1, and 0 where there is no plan. A file that is not of this process's
 * user is none of a controller's, and an error. */
int erg_job_folder_find_plan(struct erg_live_plan *plan, const char *spool, const char *token,
                             uid_t uid, struct erg_arena *arena, struct erg_error *err);

/* The same of one's own folder; `type` NULL where there is nothing yet. */
int erg_job_folder_read_plan(struct erg_live_plan *plan, const char *folder,
                             struct erg_arena *arena, struct erg_error *err);

#endif
