/* Sets clocks and limits of GPUs of any vendor. */
#include "telemetry/knobs.h"

#include "telemetry/clocks.h"
#include "telemetry/gpu_internal.h"

#include <assert.h>

enum { NO_METHOD = -1 };

const char *erg_knob_name(enum erg_knob knob)
{
    static const char *const names[ERG_KNOBS] = {"", "clock", "power", "memory"};
    assert(knob > 0 && knob < ERG_KNOBS);
    return names[knob];
}

/* The methods, or NULL for a GPU that cannot be set or does not work. */
static const struct erg_knob_methods *methods_of(const struct erg_gpus *gpus, size_t gpu)
{
    return gpus->items[gpu].info.trouble[0] ? NULL : gpus->vendor->knobs;
}

static int judge(const struct erg_gpus *gpus, size_t gpu, const char *what, int result,
                 struct erg_error *err)
{
    const struct erg_gpu_info *info = &gpus->items[gpu].info;
    if (result == 0)
        return 0;
    if (result == NO_METHOD)
        return erg_fail(err, ERG_NO_DEVICE, "%s of GPU %d: %s", what, info->index,
                        info->trouble[0] ? info->trouble : "that of this vendor cannot be set");
    return erg_fail(err, ERG_NO_DEVICE, "%s of GPU %d (%s): %s", what, info->index, info->name,
                    gpus->vendor->knobs->reason(result));
}

void erg_knob_bounds_read(struct erg_gpus *gpus, size_t gpu, struct erg_knob_bounds *bounds)
{
    const struct erg_knob_methods *methods = methods_of(gpus, gpu);
    struct erg_clock_list list = {0};
    *bounds = (struct erg_knob_bounds){0};
    if (!methods)
        return;
    if (erg_clocks_supported(gpus, gpu, &list, NULL) == 0) {
        bounds->clocks_mhz = list.clocks_mhz; /* the bounds own it now */
        bounds->clock_count = list.count;
        bounds->least[ERG_KNOB_CLOCK] = list.clocks_mhz[0];
        bounds->most[ERG_KNOB_CLOCK] = list.clocks_mhz[list.count - 1];
    }
    for (enum erg_knob knob = ERG_KNOB_POWER; knob < ERG_KNOBS; knob++)
        if (methods->bounds(&gpus->items[gpu], knob, &bounds->least[knob], &bounds->most[knob]))
            bounds->least[knob] = bounds->most[knob] = 0;
    if (methods->limit_default(&gpus->items[gpu], &bounds->limit_default_mw) != 0)
        bounds->limit_default_mw = 0;
}

void erg_knob_bounds_release(struct erg_knob_bounds *bounds)
{
    struct erg_clock_list list = {bounds->clocks_mhz, bounds->clock_count};
    erg_clock_list_release(&list);
    *bounds = (struct erg_knob_bounds){0};
}

int erg_knob_set(struct erg_gpus *gpus, size_t gpu, enum erg_knob knob, int64_t low, int64_t high,
                 int *driver, struct erg_error *err)
{
    static const char *const what[ERG_KNOBS] = {
        "", "setting the SM clock", "setting the power limit", "setting the memory clock"};
    const struct erg_knob_methods *methods = methods_of(gpus, gpu);
    *driver = methods ? methods->set(&gpus->items[gpu], knob, low, high) : NO_METHOD;
    return judge(gpus, gpu, what[knob], *driver, err);
}

int erg_knob_reset(struct erg_gpus *gpus, size_t gpu, enum erg_knob knob, int *driver,
                   struct erg_error *err)
{
    const struct erg_knob_methods *methods = methods_of(gpus, gpu);
    assert(knob != ERG_KNOB_POWER);
    *driver = methods ? methods->reset(&gpus->items[gpu], knob) : NO_METHOD;
    return judge(gpus, gpu, "unlocking a clock", *driver, err);
}

int erg_knob_read(struct erg_gpus *gpus, size_t gpu, enum erg_knob knob, int64_t *value,
                  struct erg_error *err)
{
    const struct erg_knob_methods *methods = methods_of(gpus, gpu);
    int result = methods ? methods->read(&gpus->items[gpu], knob, value) : NO_METHOD;
    return judge(gpus, gpu, "reading a clock or limit", result, err);
}

int erg_persistence_read(struct erg_gpus *gpus, size_t gpu, bool *on, struct erg_error *err)
{
    const struct erg_knob_methods *methods = methods_of(gpus, gpu);
    int result = methods ? methods->persistence(&gpus->items[gpu], on) : NO_METHOD;
    return judge(gpus, gpu, "reading the persistence mode", result, err);
}

int erg_persistence_set(struct erg_gpus *gpus, size_t gpu, bool on, struct erg_error *err)
{
    const struct erg_knob_methods *methods = methods_of(gpus, gpu);
    int result = methods ? methods->set_persistence(&gpus->items[gpu], on) : NO_METHOD;
    return judge(gpus, gpu, "setting the persistence mode", result, err);
}
