/* The times at which jobs had GPUs. */
#include "cluster/simulate/gpu_uses.h"

#include "base/memory.h"

#include <stdlib.h>

/* The start of a job's present allocation: its record. */
static void close_use(struct erg_gpu_uses *uses, const struct erg_simulated *result,
                      const struct erg_cluster_record **held, int job, double now_s)
{
    const struct erg_cluster_record *record = held[job];
    if (!record)
        return;
    for (int i = 0; i < record->slices && now_s > record->at_s; i++) {
        struct erg_gpu_use use = {
            .job = job,
            .point = record->point,
            .gpus = result->slices[record->first_slice + (size_t)i],
            .from_s = record->at_s,
            .to_s = now_s,
        };
        ERG_PUSH(uses, items, use);
    }
    held[job] = NULL;
}

void erg_gpu_uses_read(struct erg_gpu_uses *uses, const struct erg_simulated *result)
{
    *uses = (struct erg_gpu_uses){0};
    const struct erg_cluster_record **held = erg_xcalloc(result->jobs_count, sizeof *held);
    for (size_t i = 0; i < result->records_count; i++) {
        const struct erg_cluster_record *record = &result->records[i];
        switch (record->kind) {
        case ERG_RECORD_START:
        case ERG_RECORD_CHANGE:
            close_use(uses, result, held, record->job, record->at_s);
            held[record->job] = record;
            break;
        case ERG_RECORD_SUSPEND:
        case ERG_RECORD_EVICT:
        case ERG_RECORD_END:
            close_use(uses, result, held, record->job, record->at_s);
            break;
        default:
            break;
        }
    }
    for (size_t job = 0; job < result->jobs_count; job++)
        close_use(uses, result, held, (int)job, result->summary.simulated_s);
    free(held);
}

void erg_gpu_uses_release(struct erg_gpu_uses *uses)
{
    free(uses->items);
    *uses = (struct erg_gpu_uses){0};
}

void erg_slice_bits(char bits[ERG_NODE_GPUS_MOST + 1], const struct erg_slice *slice)
{
    int count = 0;
    for (; count < ERG_NODE_GPUS_MOST && slice->gpus >> count; count++)
        bits[count] = slice->gpus >> count & 1 ? '1' : '0';
    bits[count] = '\0';
}
