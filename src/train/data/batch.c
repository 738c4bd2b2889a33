/* Batches: opens the data of a job and distributes it to microbatches. */
#include "train/data/batch.h"

#include "base/memory.h"
#include "base/text.h"
#include "ops/context.h"

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

int erg_batches_open(struct erg_batches *batches, const struct erg_job *job,
                     const struct erg_batch_files *files, struct erg_error *err)
{
    uint64_t sequence = (uint64_t)job->layout.sequence;
    size_t count = files->count;
    *batches = (struct erg_batches){
        .job = job,
        .sets = erg_xcalloc(count, sizeof *batches->sets),
        .order = {.seed = job->training->seed,
                  .shuffle = files->shuffle,
                  .sets = erg_xcalloc(count, sizeof *batches->order.sets),
                  .count = count},
        .window = erg_xcalloc((size_t)sequence + 1, sizeof *batches->window),
        .targets = erg_xcalloc((size_t)sequence, sizeof *batches->targets),
    };
    for (size_t i = 0; i < count; i++) {
        struct erg_token_set *set = &batches->sets[i];
        if (add_files(set, job, &files->sets[i], err) != 0)
            return erg_fail_context(err, "%s: key '%s[%zu].file'", job->path, files->key, i);
        batches->order.sets[i].weight = files->sets[i].weight;
        batches->order.sets[i].samples = set->tokens ? (set->tokens - 1) / sequence : 0;
        if (batches->order.sets[i].samples == 0)
            return erg_fail(err, ERG_FAILED,
                            "%s: key '%s[%zu].file': %llu tokens are too few for one sequence "
                            "of %llu and the token after it",
                            job->path, files->key, i, (unsigned long long)set->tokens,
                            (unsigned long long)sequence);
    }
    return 0;
}

char *erg_batches_describe(const struct erg_batches *batches)
{
    const struct erg_training *training = batches->job->training;
    struct erg_text text = {0};
    for (size_t i = 0; i < batches->order.count; i++)
        erg_text_printf(&text, "%s%.9g of %llu tokens", i ? ", " : "",
                        batches->order.sets[i].weight, (unsigned long long)batches->sets[i].tokens);
    erg_text_add(&text, batches->order.shuffle ? ", shuffled" : ", in order");
    if (training->mask == ERG_MASK_EOD)
        erg_text_printf(&text, ", masked behind %d", training->eod);
    return text.data;
}

void erg_batches_release(struct erg_batches *batches)
{
    for (size_t i = 0; batches->sets && i < batches->order.count; i++)
        erg_token_set_release(&batches->sets[i]);
    free(batches->sets);
    free(batches->order.sets);
    free(batches->window);
    free(batches->targets);
    *batches = (struct erg_batches){0};
}

/* Appends a rank's tokens of the sample in the window. */
static void take_tokens(const struct erg_batches *batches, long context_place, int32_t **ids,
                        int32_t **targets)
{
    const struct erg_layout *layout = &batches->job->layout;
    for (int half = ERG_CONTEXT_LOW; half <= ERG_CONTEXT_HIGH; half++) {
        struct erg_context_chunk chunk =
            erg_context_chunk((size_t)layout->sequence, (size_t)layout->context,
                              (size_t)context_place, (enum erg_context_half)half);
        if (layout->context == 1)
            chunk = (struct erg_context_chunk){.count = (size_t)layout->sequence};
        memcpy(*ids, batches->window + chunk.first, chunk.count * sizeof **ids);
        memcpy(*targets, batches->targets + chunk.first, chunk.count * sizeof **targets);
        *ids += chunk.count;
        *targets += chunk.count;
        if (layout->context == 1)
            return;
    }
}

int erg_batches_next(struct erg_batches *batches, const struct erg_batch_share *share, int32_t *ids,
                     int32_t *targets, uint64_t *counted, struct erg_error *err)
{
    const struct erg_layout *layout = &batches->job->layout;
    const struct erg_training *training = batches->job->training;
    size_t sequence = (size_t)layout->sequence;
    long samples = erg_layout_batch(layout);
    bool counts_all = training->mask == ERG_MASK_NOTHING;
    *counted = ids && counts_all ? (uint64_t)samples * sequence : 0;
    for (long j = 0; j < samples; j++) {
        struct erg_order_place place = erg_order_deal(&batches->order);
        bool mine = j / layout->microbatch % layout->data == share->data;
        if (!ids || (!mine && counts_all))
            continue;
        if (erg_token_set_read(&batches->sets[place.set], place.sample * sequence, sequence + 1,
                               erg_model_words(batches->job->model), batches->window, err) != 0)
            return -1;
        for (size_t i = 0; i < sequence; i++) {
            bool masked = training->mask == ERG_MASK_EOD && batches->window[i] == training->eod;
            batches->targets[i] = masked ? -1 : batches->window[i + 1];
            *counted += !counts_all && !masked;
        }
        if (mine)
            take_tokens(batches, share->context, &ids, &targets);
    }
    return 0;
}
