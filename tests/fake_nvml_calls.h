/* What the entry points of the fake NVML begin with, in whichever file they are. */
#ifndef ERGON_TESTS_FAKE_NVML_CALLS_H
#define ERGON_TESTS_FAKE_NVML_CALLS_H

#include "fake_nvml.h"
#include "telemetry/nvml_internal.h"

#include <pthread.h>

extern pthread_mutex_t fake_lock; /* of what changes behind the script */

void fake_count_call(const char *call);
/* Delays and failures that the script asks for; `call` may be a field too. */
int fake_obey(struct fake_gpu *gpu, const char *call);

/* As settings leave them (fake_nvml_settings.c): the SM clock, with the lock held, and the limit.
 */
unsigned fake_locked_clock(struct fake_gpu *gpu);
/* What other processes have set, for power that follows. */
void fake_read_settings(void);
uint32_t fake_limit_mw(struct fake_gpu *gpu);

/* Defines an exported function, with the prototype that the warnings ask for. */
#define ENTRY(name, ...)                                                                           \
    __attribute__((visibility("default"))) int name(__VA_ARGS__);                                  \
    int name(__VA_ARGS__)
#ifdef FAKE_NVML_OLD
#define VERSIONED(new_name, old_name) old_name
#else
#define VERSIONED(new_name, old_name) new_name
#endif

static inline struct fake_gpu *gpu_of(nvml_device device)
{
    return (struct fake_gpu *)(void *)device;
}

#define BEGIN(device, call)                                                                        \
    struct fake_gpu *gpu = gpu_of(device);                                                         \
    fake_count_call(call);                                                                         \
    int begin_result = fake_obey(gpu, call);                                                       \
    if (begin_result != NVML_SUCCESS)                                                              \
    return begin_result

#endif
