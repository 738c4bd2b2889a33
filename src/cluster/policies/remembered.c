/* Reads and writes the state of jobs that policies save as JSON. */
#include "cluster/policies/remembered.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

void erg_remembered_init(struct erg_remembered *remembered, const struct erg_scheduler *scheduler)
{
    *remembered = (struct erg_remembered){.scheduler = scheduler};
    remembered->count = erg_scheduler_told(scheduler, &remembered->jobs);
    for (size_t i = 0; i < remembered->count; i++)
        erg_name_add(&remembered->names, scheduler->jobs[remembered->jobs[i]].request->id);
}

void erg_remembered_release(struct erg_remembered *remembered)
{
    free(remembered->jobs);
    erg_name_table_release(&remembered->names);
}

int erg_remembered_find(const struct erg_remembered *remembered, const char *name)
{
    size_t at = erg_name_find(&remembered->names, name);
    return at < remembered->names.count ? remembered->jobs[at] : -1;
}

double erg_remembered_time(const json_t *object, const char *key,
                           const struct erg_scheduler *scheduler, double otherwise)
{
    return fmin(scheduler->now_s, erg_json_number_or(object, key, otherwise));
}

json_t *erg_remembered_array(const double *numbers, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, erg_json_number(numbers[i]));
    return array;
}

void erg_remembered_read_array(const json_t *array, double *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, i);
        if (json_is_number(value) && json_number_value(value) >= 0)
            numbers[i] = json_number_value(value);
    }
}
