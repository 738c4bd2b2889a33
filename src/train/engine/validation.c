/* Validation: the loss on data outside the training set. */
#include "train/engine/trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

int erg_trainer_open_validation(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_training_validation *validation = &trainer->training->validation;
    const struct erg_batch_files files = {"train.validation.data", validation->data,
                                          validation->data_count, false};
    if (!validation->data)
        return 0;
    if (erg_batches_open(&trainer->validation, trainer->job, &files, err) != 0)
        return -1;
    const struct erg_data_order *order = &trainer->validation.order;
    uint64_t batch = erg_trainer_step_tokens(trainer) / (uint64_t)trainer->job->layout.sequence;
    uint64_t samples = 0;
    for (size_t i = 0; i < order->count; i++)
        samples += order->sets[i].samples;
    trainer->validation_batches =
        validation->batches ? (uint64_t)validation->batches : samples / batch;
    if (trainer->validation_batches >= 1 && trainer->validation_batches * batch <= samples)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "%s: key '%s': the files have %" PRIu64 " sequences of %ld tokens; expected at "
                    "least the %" PRIu64 " of %" PRIu64 " batch%s of %" PRIu64,
                    trainer->job->path,
                    validation->batches ? "train.validation.batches" : files.key, samples,
                    trainer->job->layout.sequence,
                    (validation->batches ? trainer->validation_batches : 1) * batch,
                    validation->batches ? trainer->validation_batches : 1,
                    validation->batches > 1 ? "es" : "", batch);
}

int erg_trainer_validate(struct erg_trainer *trainer, double *loss, struct erg_error *err)
{
    struct erg_stage_listener reads = erg_optimizer_reads(trainer->optimizer);
    struct erg_rank_report report = {0}; /* its loss: the sum of -log p */
    erg_order_seek(&trainer->validation.order, 0);
    for (uint64_t i = 0; i < trainer->validation_batches; i++) {
        uint64_t targets;
        int loaded = erg_trainer_load(trainer, &trainer->validation, &targets, err);
        if (erg_rendezvous_agree(trainer->options.rendezvous, loaded, err) != 0)
            return -1;
        trainer->in_step = true; /* a failure from here on is one of this rank only */
        if (erg_passes_forward(trainer->passes, trainer->microbatches, &reads, err) ||
            erg_trainer_read_scalars(trainer, err))
            return -1;
        trainer->in_step = false;
        report.targets += targets;
        report.loss += erg_trainer_own_loss(trainer) * (double)targets;
    }
    if (erg_trainer_sum_reports(trainer, &report, err) != 0)
        return -1;
    *loss = report.targets ? report.loss / (double)report.targets : (double)NAN;
    return 0;
}
