/*
 * Ask: questions whose answers are shown as a whole, as text for people and as JSON for programs:
 * the layouts, the memory and the plan of a job, the abilities and the state of a machine, the
 * clocks of a rank, the frontier of a profile, a fitted engine, whether a plan holds on a stack of
 * layers, live jobs, traces, simulated clusters.
 *
 *     struct erg_answer *answer;
 *     const struct erg_ask_frontier question = {
 *         .size = sizeof question, .profile = "profile.csv", .microbatches = 12};
 *     if (erg_ask_frontier(&answer, &question, &err)) ...
 *     fputs(erg_answer_text(answer), stdout);
 *     erg_answer_free(answer);
 *
 * Texts are the output of the commands, and their words may change; documents have a
 * schema_version. Texts of questions need not outlive the call. Files are read and written where a
 * member names them. A wrong question fails with ERG_USAGE, a wrong file with ERG_FAILED and its
 * place. Messages may name a member as the command names its option: --gpus.
 *
 * If a question has the options of another header, their `watch` is not used. NULL: the defaults.
 */
#ifndef ERGON_ASK_H
#define ERGON_ASK_H

#include "ergon/error.h"
#include "ergon/layout.h"
#include "ergon/memory.h"
#include "ergon/optimize.h"
#include "ergon/simulate.h"
#include "ergon/train.h"
#include "ergon/watch.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* The lists of words from which options that are texts take one. */
enum erg_word_list {
    ERG_WORDS_ACCOUNTING = 1, /* erg_memory_options.accounting */
    ERG_WORDS_CATEGORIES,     /* erg_kernels_options.categories */
    ERG_WORDS_DEVICE,         /* of erg_optimize_options, erg_ask_probe and erg_ask_verify */
    ERG_WORDS_EXPORT,         /* erg_ask_layouts.export_as */
    ERG_WORDS_FORMAT,         /* of erg_record_export() */
    ERG_WORDS_OBJECTIVE,      /* erg_layouts_options.objective */
    ERG_WORDS_PICK,           /* erg_plan_goal.pick */
    ERG_WORDS_PLANNER,        /* erg_ask_layouts.planner */
    ERG_WORDS_RECOMPUTE,      /* of erg_layouts_options and erg_ask_memory */
    ERG_WORDS_RIGHT,          /* erg_characterization_options.right */
    ERG_WORDS_SEARCH,         /* erg_ask_optimize.search */
    ERG_WORDS_SENSOR,         /* erg_characterization_options.sensor */
    ERG_WORDS_STUDY_DEVICE,   /* erg_characterization_options.device */
    ERG_WORDS_TRAIN_TYPE,     /* by enum erg_train_type */
};
/* The words of a list, which end with NULL; NULL if there is no such list. */
const char *const *erg_words(enum erg_word_list list);

struct erg_answer;

/* For people; a document; rows of CSV. They live as long as the answer; NULL: none. */
const char *erg_answer_text(const struct erg_answer *answer);
const char *erg_answer_json(const struct erg_answer *answer);
const char *erg_answer_csv(const struct erg_answer *answer);

/* Checks the result: a verification that failed gives ERG_FAILED with the difference, a layout or a
 * run that does not fit ERG_INFEASIBLE with what is missing, a command that failed its own status.
 * If a question fails after a part of its answer, that failure is the result. Other answers give
 * ERG_OK. */
int erg_answer_check(const struct erg_answer *answer, struct erg_error *err);
void erg_answer_free(struct erg_answer *answer); /* NULL is fine */

/* The abilities of this machine for ergon, with reasons for those that it lacks: ergon-doctor(1).
 * Takes two seconds. */
struct erg_ask_doctor {
    size_t size;
    const char *gpus; /* "all", or indices and UUIDs with commas; NULL: CUDA_VISIBLE_DEVICES */
    const struct erg_watch *watch;
};
int erg_ask_doctor(struct erg_answer **answer, const struct erg_ask_doctor *question,
                   struct erg_error *err);

/* The state of every GPU now, as ergon monitor(1) prints it with --once. Takes one to three
 * seconds.
 */
struct erg_ask_monitor {
    size_t size;
    const char *gpus;    /* as in erg_meter_open() */
    int64_t interval_ms; /* one step of the history of power; 0: 500 */
    const struct erg_watch *watch;
};
int erg_ask_monitor(struct erg_answer **answer, const struct erg_ask_monitor *question,
                    struct erg_error *err);

/*
 * Rates, powers and energies of a machine's GPUs, and an emulated GPU with the same; or, with
 * `thermal`, how they warm themselves and each other, and a chassis that does the same:
 * ergon-probe(1). All ranks of GPUs call it, and *answer is NULL on all ranks but one; for
 * `thermal` one process calls it.
 */
struct erg_ask_probe {
    size_t size;
    const char *device;    /* "cuda" or "emulated"; NULL: cuda */
    const char *calibrate; /* a file for the GPU or the chassis, "NAME.yaml"; NULL: none */
    const char *rows;      /* a file that keeps the measurements; NULL: next to `calibrate` */
    const char *from;      /* existing measurements: nothing is measured; NULL: none */
    const char *base;      /* the GPU or the chassis to start from; NULL: from the catalogue */
    int64_t gpus;          /* of the emulated group, or of the rows in `from`; 0: 2 */
    const uint64_t *seed;  /* NULL: 1 */
    int32_t thermal;       /* 1: heat. Files are recordings and chassis; the next ones need it */
    double turn_s;         /* each GPU works, then rests, for this long; 0: 120 */
    double until_s;        /* fits to the recording before it; 0: all but every fifth half minute */
    const char *const *command; /* loads a GPU; ends with NULL; NULL: ergon probe */
    const char *program;        /* the command ergon; NULL: from PATH */
    const struct erg_watch *watch;
};
int erg_ask_probe(struct erg_answer **answer, const struct erg_ask_probe *question,
                  struct erg_error *err);

/* How to spread a job over GPUs: ergon-layout(1). If nothing fits, the document has the smallest
 * change with which something would, and the check fails with ERG_INFEASIBLE. */
struct erg_ask_layouts {
    size_t size;
    const char *job; /* a file */
    const struct erg_layouts_options *options;
    const char *cluster; /* a file that replaces the job's; NULL: the job's */
    const char *engine;  /* name or file; NULL: the job's */
    int64_t sequence;    /* tokens; 0: the job's */
    const char *why;     /* a layout to compare with the best, as text alone; NULL: none */
    /* The best as text alone: "megatron", "torchtitan" or "job"; or "profile": the frontiers for
     * all numbers of GPUs. NULL: an answer. */
    const char *export_as;
    const char *planner; /* "ergon", or "arena", a published planner; NULL: ergon */
    int32_t slots;       /* 1: also the slots of a node for the groups of the best */
    /* Gets layouts.json, layouts.html, job.yaml and plan.json. NULL: nothing is written. */
    const char *folder;
    const struct erg_watch *watch;
};
int erg_ask_layouts(struct erg_answer **answer, const struct erg_ask_layouts *question,
                    struct erg_error *err);

/* The memory of every stage of a job's layout: ergon-memory(1). The check fails with ERG_INFEASIBLE
 * if it does not fit. */
struct erg_ask_memory {
    size_t size;
    const char *job; /* a file */
    const struct erg_memory_options *options;
    const char *engine;    /* name or file, for times of copies; NULL: the job's */
    int64_t sequence;      /* tokens; 0: the job's */
    const char *recompute; /* NULL: from the layout */
    const double *offload; /* share of the activations; NULL: from the layout */
    const char *page;      /* a file for a page with memory over time; NULL: none is written */
    const struct erg_watch *watch;
};
int erg_ask_memory(struct erg_answer **answer, const struct erg_ask_memory *question,
                   struct erg_error *err);

/* From a job to its plan: ergon-optimize(1). With the device "cuda" all ranks of the job call it;
 * *answer is NULL on all ranks but one. */
struct erg_ask_optimize {
    size_t size;
    const char *job; /* a file */
    const struct erg_optimize_options *options;
    int64_t microbatches, microbatch_size, sequence; /* replace the job's; 0: the job's */
    const char *search;   /* "gp", "trees", "random" or "exhaustive"; NULL: the job's */
    const uint64_t *seed; /* NULL: the job's */
    const struct erg_watch *watch;
};
int erg_ask_optimize(struct erg_answer **answer, const struct erg_ask_optimize *question,
                     struct erg_error *err);

/* The clocks that a rank gets when another trainer follows a plan: ergon hook(1). */
struct erg_ask_programme {
    size_t size;
    const char *plan;        /* a file */
    const char *method;      /* NULL: sequential+clocks */
    int64_t point;           /* from 1 on; 0: the plan's selected one, if it is of that method */
    int64_t stage;           /* from 0 on */
    double dwell_s;          /* least time of a clock; 0: 0.05 */
    double least_change_mhz; /* smaller changes are skipped; 0: 30 */
    int32_t clocks_only;     /* 1: accepts methods that only ergon's own training can run */
    const struct erg_watch *watch;
};
int erg_ask_programme(struct erg_answer **answer, const struct erg_ask_programme *question,
                      struct erg_error *err);

/* The time-energy frontier of a pipeline from a measured profile: ergon frontier(1), which has its
 * columns. Energies are of one GPU per stage. With a deadline or a budget the answer is one point.
 */
struct erg_ask_frontier {
    size_t size;
    const char *profile; /* a table of CSV */
    const char *plan;    /* a file for all points, the chosen one selected; NULL: none is written */
    int64_t microbatches;
    int64_t virtual_stages;         /* of each stage, with `interleaved`; 0: 1 */
    int32_t interleaved;            /* 1: that schedule; 0: 1F1B */
    int64_t points;                 /* deadlines to make plans for; 0: 100 */
    const double *blocking_power_w; /* of a GPU that waits; NULL: unknown, 0 is used */
    double p2p_latency_s;           /* from one stage to the next */
    double unit_s;                  /* resolution of planned times; 0: as fine as fits */
    double deadline_s, energy_j;    /* at most one; 0: none */
    uint64_t seed;
    const struct erg_watch *watch;
};
int erg_ask_frontier(struct erg_answer **answer, const struct erg_ask_frontier *question,
                     struct erg_error *err);

/* The constants of a training engine that explain measured iterations: ergon fit(1). */
struct erg_ask_fit {
    size_t size;
    const char *rows;        /* a table of CSV; NULL: only runs */
    const char *const *runs; /* folders of training runs, each a row */
    size_t run_count;
    const char *engine;        /* name or file: its constants are the start */
    const char *job, *cluster; /* the hardware of the rows: one of them; for runs, their own */
    const char *keys;          /* the constants to fit, with commas; at most eight */
    const char *output;        /* a file for the fitted engine; NULL: none is written */
    int64_t folds;             /* parts of the rows, each predicted from the others; 0: 5 */
    const struct erg_watch *watch;
};
int erg_ask_fit(struct erg_answer **answer, const struct erg_ask_fit *question,
                struct erg_error *err);

/*
 * Runs a plan's schedule on a stack of layers and compares it with its parts: ergon-verify(1).
 * erg_answer_check() fails if time or energy differ by more than 3 %, or results by more than
 * rounding. On GPUs all ranks call it; *answer is NULL on all ranks but one.
 */
struct erg_ask_verify {
    size_t size;
    const char *job, *plan; /* files */
    const char *device;     /* "emulated" or "cuda"; NULL: emulated */
    int64_t layers;         /* of the stack, 2 to 1000; 0: 4 */
    int32_t repeatable;     /* 1, on GPUs: an attention whose gradients are repeatable bit by bit */
    const struct erg_watch *watch;
};
int erg_ask_verify(struct erg_answer **answer, const struct erg_ask_verify *question,
                   struct erg_error *err);

/* Describes a training run without a step: its plan, memory, time and energy, as ergon-train(1)
 * prints them with --dry-run. *answer is NULL on all ranks but rank 0. */
struct erg_ask_train {
    size_t size;
    const char *job;                         /* a file */
    const struct erg_train_options *options; /* of the run; NULL: the defaults */
    int32_t best;                            /* 1: as erg_train_open_best() would run */
    const struct erg_watch *watch;
};
int erg_ask_train(struct erg_answer **answer, const struct erg_ask_train *question,
                  struct erg_error *err);

/* The state and GPUs of the jobs that a cluster's scheduler manages: ergon-jobs(1). */
struct erg_ask_jobs {
    size_t size;
    const char *live; /* the cluster's live file */
    int32_t all;      /* 1: also jobs of other users, and ended ones that Slurm still lists */
    const struct erg_watch *watch;
};
int erg_ask_jobs(struct erg_answer **answer, const struct erg_ask_jobs *question,
                 struct erg_error *err);

/* Submits a job to a cluster's scheduler: ergon submit(1). Exactly one of `job`, `like` and
 * `resume` is set. */
struct erg_ask_submit {
    size_t size;
    const char *live;   /* the cluster's live file */
    const char *job;    /* a job's file, for ergon train */
    const char *like;   /* MODEL:BATCH:ITERATIONS of a program that trains */
    const char *resume; /* the folder of a job that has left Slurm; excludes all other members */
    /* The program and its arguments, or further options of ergon train. */
    const char *const *arguments;
    size_t argument_count;
    int64_t gpus, gpus_most; /* requested, and the maximum; 0: from the job and the cluster */
    const char *type;        /* of GPU; NULL: any */
    const char *deadline;    /* "HH:MM:SS" from now on, or "2026-01-31T12:00"; NULL: none */
    double weight;           /* among other jobs; 0: 1 */
    int32_t per_node;        /* 1: the program starts once on each node, not for each GPU */
    const char *program;     /* the command ergon on the cluster; NULL: from PATH */
    const struct erg_watch *watch;
    /* With `job`: the most seconds of measurements before: Slurm jobs side by side train it for a
     * moment on one GPU of each type. 0: the planner's speeds are used. */
    double measure_s;
};
int erg_ask_submit(struct erg_answer **answer, const struct erg_ask_submit *question,
                   struct erg_error *err);

/* A trace of jobs for simulations, as text alone: drawn from a recipe, or imported from the log
 * of another cluster; the watch gets messages on skipped rows: ergon-import(1). */
struct erg_ask_trace {
    size_t size;
    const char *cluster;      /* the file of the cluster that its jobs are to run on */
    const char *profiles;     /* the folder of the profiles of their models */
    const char *recipe, *log; /* files: one of them */
    uint64_t seed;
    const struct erg_watch *watch;
};
int erg_ask_trace(struct erg_answer **answer, const struct erg_ask_trace *question,
                  struct erg_error *err);

/* The jobs of a trace on a cluster under one or several policies: ergon-simulate(1). If a policy
 * fails, the answer has the text of those before it. */
struct erg_ask_simulate {
    size_t size;
    const struct erg_simulations_options *options;
    const struct erg_watch *watch;
};
int erg_ask_simulate(struct erg_answer **answer, const struct erg_ask_simulate *question,
                     struct erg_error *err);

/* All simulations of a sweep's file, on all cores, continued after an interruption:
 * ergon-simulate(1). If some fail, the answer has the others. */
struct erg_ask_sweep {
    size_t size;
    const char *file;
    const char *folder;  /* for simulations, sweep.csv, sweep.json and report.html */
    const char *part;    /* "2/8": every eighth, from the second on, without an answer; NULL: all */
    int64_t slurm_tasks; /* tasks of a script for Slurm, which is the text; 0: simulates here */
    const char *program; /* the command ergon in that script; NULL: from PATH */
    const struct erg_watch *watch;
};
int erg_ask_sweep(struct erg_answer **answer, const struct erg_ask_sweep *question,
                  struct erg_error *err);

/* Converts a model and a system of Calculon into ergon's files, and describes them: ergon
 * import(1).
 */
struct erg_ask_calculon {
    size_t size;
    const char *model, *system; /* its files */
    const char *folder;         /* for config.json, gpu.yaml, engine.yaml and job.yaml */
    int64_t gpus, batch;        /* 0: one node; a sequence for each GPU */
    const struct erg_watch *watch;
};
int erg_ask_calculon(struct erg_answer **answer, const struct erg_ask_calculon *question,
                     struct erg_error *err);

/* Converts texts into token files for training: ergon tokenize(1). */
struct erg_ask_tokenize {
    size_t size;
    const char *model;        /* a folder with a tokenizer.json, such a file, or "bytes" */
    const char *const *files; /* texts, or JSON lines */
    size_t file_count;
    const char *output; /* PREFIX: writes PREFIX.bin and PREFIX.idx */
    const char *key;    /* of the text of a document in JSON lines; NULL: a file is a document */
    const char *end;    /* id or text of the token after every document; NULL: the model's */
    const struct erg_watch *watch;
};
int erg_ask_tokenize(struct erg_answer **answer, const struct erg_ask_tokenize *question,
                     struct erg_error *err);

/*
 * Time and energy of a command, with their uncertainty: ergon measure(1). If the command
 * fails, erg_answer_check() fails with its exit status, and the answer has the measurements so far.
 * The calling thread blocks signals and passes them on, so call it before other threads start.
 */
struct erg_ask_measure {
    size_t size;
    const char *const *command; /* ends with NULL; looked up in PATH */
    const char *gpus;           /* as in erg_meter_open() */
    int64_t repeats, warmups;   /* 0: 1; 0: none */
    const char *carbon, *price; /* tables by the hour, of g_per_kwh and usd_per_kwh; NULL: none */
};
int erg_ask_measure(struct erg_answer **answer, const struct erg_ask_measure *question,
                    struct erg_error *err);

/* The GPUs that the daemon of clocks and power limits lends, their ranges, and this process's
 * rights to them: ergon-daemon(1). */
struct erg_ask_daemon {
    size_t size;
    const char *socket; /* NULL: /run/ergon/ergond.sock */
};
int erg_ask_daemon(struct erg_answer **answer, const struct erg_ask_daemon *question,
                   struct erg_error *err);

/* Reports the GPUs of a Slurm job to that daemon, as root: for Slurm's prolog and epilog.
 * ERG_NO_DEVICE if there is no daemon, or it refuses. */
struct erg_grant {
    size_t size;
    const char *socket; /* as in erg_ask_daemon */
    int64_t job, uid;   /* Slurm's number of the job, and its user */
    const char *gpus;   /* "all", or indices with commas; NULL: the job has released them */
};
int erg_grant_gpus(const struct erg_grant *grant, struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
