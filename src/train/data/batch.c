/* Batches: opens the data of a job and deals it to microbatches. */
#include "train/data/batch.h"

#include "base/memory.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

static int add_files(struct erg_token_set *set, const struct erg_job *job,
                     const struct erg_training_set *source, struct erg_error *err)
{
    char *path = erg_job_file_path(job, source->file);
    glob_t found;
    int result = 0;
    if (strpbrk(source->file, "*?[") && glob(path, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && result == 0; i++)
            result = erg_token_set_add(set, found.gl_pathv[i], source->type, err);
        globfree(&found);
    } else {
        result = erg_token_set_add(set, path, source->type, err);
    }
    free(path);
    return result;
}

int erg_batches_open(struct erg_batches *batches, const struct erg_job *job, struct erg_error *err)
{
    const struct erg_training *training = job->training;
    uint64_t sequence = (uint64_t)job->layout.sequence;
    size_t count = training->data_count;
    *batches = (struct erg_batches){
        .job = job,
        .sets = erg_xcalloc(count, sizeof *batches->sets),
        .order = {.seed = training->seed,
                  .shuffle = training->shuffle,
                  .sets = erg_xcalloc(count, sizeof *batches->order.sets),
                  .count = count},
        .window = erg_xcalloc((size_t)sequence + 1, sizeof *batches->window),
    };
    for (size_t i = 0; i < count; i++) {
        struct erg_token_set *set = &batches->sets[i];
        if (add_files(set, job, &training->data[i], err) != 0)
            return erg_fail_context(err, "%s: key 'train.data[%zu].file'", job->path, i);
        batches->order.sets[i].weight = training->data[i].weight;
        batches->order.sets[i].samples = set->tokens ? (set->tokens - 1) / sequence : 0;
        if (batches->order.sets[i].samples == 0)
            return erg_fail(
                err, ERG_FAILED,
                "%s: key 'train.data[%zu].file': %llu tokens are too few for one sequence "
                "of %llu and the token behind it",
                job->path, i, (unsigned long long)set->tokens, (unsigned long long)sequence);
    }
    return 0;
}

void erg_batches_release(struct erg_batches *batches)
{
    for (size_t i = 0; batches->sets && i < batches->order.count; i++)
        erg_token_set_release(&batches->sets[i]);
    free(batches->sets);
    free(batches->order.sets);
    free(batches->window);
    *batches = (struct erg_batches){0};
}

int erg_batches_next(struct erg_batches *batches, long data_rank, int32_t *ids, int32_t *targets,
                     uint64_t *counted, struct erg_error *err)
{
    const struct erg_layout *layout = &batches->job->layout;
    const struct erg_training *training = batches->job->training;
    size_t sequence = (size_t)layout->sequence;
    long samples = layout->microbatch * layout->microbatches * layout->data;
    *counted = 0;
    for (long j = 0; j < samples; j++) {
        struct erg_order_place place = erg_order_deal(&batches->order);
        if (erg_token_set_read(&batches->sets[place.set], place.sample * sequence, sequence + 1,
                               batches->job->model->vocab, batches->window, err) != 0)
            return -1;
        bool mine = j / layout->microbatch % layout->data == data_rank;
        for (size_t i = 0; i < sequence; i++) {
            int32_t id = batches->window[i], target = batches->window[i + 1];
            if (training->mask == ERG_MASK_EOD && id == training->eod)
                target = -1;
            *counted += target >= 0;
            if (mine) {
                *ids++ = id;
                *targets++ = target;
            }
        }
    }
    return 0;
}
