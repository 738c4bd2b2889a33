/*
 * A long call that is watched: it is stopped after some steps, then goes on from what it had.
 *
 *     cc watch.c $(pkg-config --cflags --libs ergon) -o watch && ./watch job.yaml out 5
 */
#include <ergon/optimize.h>
#include <stdio.h>
#include <stdlib.h>

struct steps {
    int latest, most; /* most 0: all of them */
};

static void progress(void *context, const char *task, size_t done, size_t total)
{
    struct steps *steps = context;
    (void)task;
    (void)total;
    steps->latest = (int)done;
}

static int cancel(void *context)
{
    struct steps *steps = context;
    return steps->most && steps->latest >= steps->most;
}

static int run(const struct erg_job *job, const char *folder, int most, struct erg_error *err)
{
    struct steps steps = {.most = most};
    struct erg_watch watch = {
        .size = sizeof watch, .context = &steps, .progress = progress, .cancel = cancel};
    struct erg_optimize_options options = {
        .size = sizeof options, .watch = &watch, .folder = folder};
    struct erg_plan *plan;
    if (erg_optimize_job(&plan, job, &options, err) != 0)
        return -1;
    erg_plan_free(plan);
    return 0;
}

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_job *job;
    if (argc != 4 || atoi(argv[3]) < 1) {
        fprintf(stderr, "usage: watch JOB.yaml FOLDER STEPS\n");
        return 2;
    }
    if (erg_job_open(&job, argv[1], &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    if (run(job, argv[2], atoi(argv[3]), &err) != 0 && err.status == ERG_INTERRUPTED)
        printf("stopped; what was measured until then is in %s\n", argv[2]);
    int failed = run(job, argv[2], 0, &err) != 0;
    printf("%s\n", failed ? err.message : "the rest was measured, too");
    erg_job_free(job);
    return failed ? (int)err.status : 0;
}
