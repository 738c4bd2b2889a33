/*
 * What a test of GPU sensors begins with: the fake NVML with a script, kept open so that the test
 * can ask it for the truth.
 */
#ifndef ERGON_TESTS_FAKE_GPUS_H
#define ERGON_TESTS_FAKE_GPUS_H

#include "check.h"
#include "fake_nvml.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

struct fake {
    void *library;
    bool (*script)(const char *text);
    double (*energy_j)(unsigned gpu, int64_t from_ns, int64_t to_ns);
    unsigned (*calls)(const char *call);
    int64_t (*start_ns)(void);
    void (*release)(void);
};

#define FAKE_SYMBOL(fake, member, name)                                                            \
    do {                                                                                           \
        void *fake_symbol = dlsym((fake)->library, name);                                          \
        assert_non_null(fake_symbol);                                                              \
        memcpy(&(fake)->member, &fake_symbol, sizeof fake_symbol);                                 \
    } while (0)

/* The world begins; ergon opened after this sees it. */
static inline struct fake fake_open(const char *library, const char *script)
{
    struct fake fake = {.library = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
    if (!fake.library)
        fail_msg("%s", dlerror());
    FAKE_SYMBOL(&fake, script, "fake_nvml_script");
    FAKE_SYMBOL(&fake, energy_j, "fake_nvml_energy_j");
    FAKE_SYMBOL(&fake, calls, "fake_nvml_calls");
    FAKE_SYMBOL(&fake, start_ns, "fake_nvml_start_ns");
    FAKE_SYMBOL(&fake, release, "fake_nvml_release");
    assert_true(fake.script(script));
    setenv("ERGON_NVML", library, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return fake;
}

#ifdef __SANITIZE_THREAD__
static inline void *fake_thread(void *context)
{
    return context;
}

/* The thread sanitizer starts a thread of its own beside the first one of a process. */
static inline void start_sanitizer(void)
{
    static bool started;
    pthread_t first;
    if (started)
        return;
    started = true;
    assert_int_equal(pthread_create(&first, NULL, fake_thread, NULL), 0);
    assert_int_equal(pthread_join(first, NULL), 0);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}
#else
static inline void start_sanitizer(void)
{
}
#endif

/* Threads of this process. */
static inline size_t fake_threads(void)
{
    start_sanitizer();
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Ends all hangs and waits for the threads that were left alone in them: `threads` remain. */
static inline void fake_release(const struct fake *fake, size_t threads)
{
    fake->release();
    for (int i = 0; i < 6000 && fake_threads() > threads; i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    assert_int_equal(fake_threads(), threads);
}

static inline void fake_close(struct fake *fake)
{
    dlclose(fake->library);
}

#endif
