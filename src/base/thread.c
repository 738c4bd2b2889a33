/* Threads: how many cores there are to use, and work on all of them (base/thread.h). */
#define _GNU_SOURCE /* sched_getaffinity */
#include "base/thread.h"

#include "base/call.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- how many cores ---- */

/* The quota of one folder of a control group; infinity where it sets none. */
static double group_quota(const char *folder)
{
    static const char *const versions[][2] = {{"cpu.max", NULL},
                                              {"cpu.cfs_quota_us", "cpu.cfs_period_us"}};
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
        double numbers_us[2] = {0, 0}; /* "max" and -1 mean none */
        size_t found = 0;
        for (size_t f = 0; f < 2 && versions[v][f]; f++) {
            struct erg_text path = {0};
            erg_text_printf(&path, "%s/%s", folder, versions[v][f]);
            FILE *file = fopen(path.data, "r");
            while (file && found < 2 && fscanf(file, "%lf", &numbers_us[found]) == 1)
                found++;
            if (file)
                fclose(file);
            erg_text_release(&path);
        }
        if (found == 2 && numbers_us[0] > 0 && numbers_us[1] > 0)
            return numbers_us[0] / numbers_us[1];
    }
    return INFINITY;
}

/*
 * The tightest quota of a group and those above it. In a container the group's path may be that of
 * the host, which does not exist here; the root of the tree then is the container's own group.
 */
static double tree_quota(const char *root, const char *tree, const char *group)
{
    struct erg_text folder = {0};
    erg_text_printf(&folder, "%s/sys/fs/cgroup%s", root, tree);
    size_t top = folder.count;
    erg_text_add(&folder, group);
    double tightest = group_quota(folder.data);
    for (size_t end = folder.count; end-- > top;)
        if (folder.data[end] == '/') {
            folder.data[end] = '\0';
            tightest = fmin(tightest, group_quota(folder.data));
        }
    erg_text_release(&folder);
    return tightest;
}

double erg_thread_quota(const char *root)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path.data, "r");
    erg_text_release(&path);
    double tightest = INFINITY;
    char line[4096]; /* "0::/group" of version 2, "3:cpu,cpuacct:/group" of version 1 */
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'),
             *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *controllers++ = *group++ = '\0';
        if (!*controllers)
            tightest = fmin(tightest, tree_quota(root, "", group));
        for (char *rest = controllers, *word; (word = strtok_r(rest, ",", &rest)) != NULL;)
            if (strcmp(word, "cpu") == 0) /* a link to the tree of all its controllers */
                tightest = fmin(tightest, tree_quota(root, "/cpu", group));
    }
    if (file)
        fclose(file);
    return tightest;
}

/* The kernel refuses a set that is smaller than its own, which may be of any size. */
static size_t usable_cores(void)
{
    for (int cores = CPU_SETSIZE; cores <= 1 << 20; cores *= 2) {
        cpu_set_t *usable = CPU_ALLOC((size_t)cores);
        size_t bytes = CPU_ALLOC_SIZE((size_t)cores);
        bool told = usable && sched_getaffinity(0, bytes, usable) == 0;
        int reason = errno, count = told ? CPU_COUNT_S(bytes, usable) : 0;
        CPU_FREE(usable);
        if (told)
            return count > 0 ? (size_t)count : 1;
        if (reason != EINVAL)
            break;
    }
    return 1;
}

static double own_quota;
static pthread_once_t own_quota_once = PTHREAD_ONCE_INIT;

static void read_own_quota(void)
{
    own_quota = erg_thread_quota("");
}

size_t erg_thread_count(void)
{
    size_t cores = usable_cores();
    pthread_once(&own_quota_once, read_own_quota);
    double quota = ceil(own_quota);
    return quota < (double)cores ? (size_t)fmax(quota, 1) : cores;
}

/* ---- running ---- */

/* Within a task all cores have work already. */
static _Thread_local bool within_task;

struct parallel {
    pthread_mutex_t lock;
    size_t next, count;
    int (*task)(void *context, size_t i, struct erg_error *err);
    void *context;
    struct erg_call *call; /* for which all threads work */
    pthread_t *handles;    /* of the threads started in addition to the caller */
    size_t started;
    bool failed;
    size_t failed_at;
    struct erg_error error;
};

static void work_on(struct parallel *work)
{
    for (;;) {
        pthread_mutex_lock(&work->lock);
        bool stop = work->failed || work->next >= work->count || erg_call_is_lost();
        size_t i = stop ? 0 : work->next++;
        pthread_mutex_unlock(&work->lock);
        if (stop)
            return;
        struct erg_error error = {0};
        bool outer = within_task;
        within_task = true;
        int result = work->task(work->context, i, &error);
        within_task = outer;
        if (result) {
            pthread_mutex_lock(&work->lock);
            if (!work->failed || i < work->failed_at) {
                work->failed = true;
                work->failed_at = i;
                work->error = error;
            }
            pthread_mutex_unlock(&work->lock);
        }
    }
}

static void *worker(void *argument)
{
    struct parallel *work = argument;
    erg_call_enter(work->call);
    work_on(work);
    return NULL;
}

/* Also where the caller's own piece ends this thread. */
static void join(void *argument)
{
    struct parallel *work = argument;
    for (size_t i = 0; i < work->started; i++)
        pthread_join(work->handles[i], NULL);
    free(work->handles);
    pthread_mutex_destroy(&work->lock);
}

int erg_parallel_for(size_t count, size_t threads,
                     int (*task)(void *context, size_t i, struct erg_error *err), void *context,
                     struct erg_error *err)
{
    struct parallel work = {
        .count = count, .task = task, .context = context, .call = erg_call_current()};
    size_t wanted = threads ? threads : within_task ? 1 : erg_thread_count();
    if (wanted > count)
        wanted = count;
    work.handles = erg_xcalloc(wanted, sizeof *work.handles);
    pthread_mutex_init(&work.lock, NULL);
    pthread_cleanup_push(join, &work);
    while (work.started + 1 < wanted &&
           !pthread_create(&work.handles[work.started], NULL, worker, &work))
        work.started++;
    work_on(&work); /* the caller works too, so a refused thread only costs speed */
    pthread_cleanup_pop(1);
    if (erg_call_is_lost())
        erg_call_leave();
    if (work.failed && err)
        *err = work.error;
    return work.failed ? -1 : 0;
}

/* ---- threads of one's own ---- */

int erg_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

void erg_thread_wake(int fd)
{
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void erg_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool erg_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ns)
{
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    return pthread_cond_timedwait(condition, lock, &until) == 0;
}
