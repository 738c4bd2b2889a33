/* Layouts of the published runs, and the peaks of a layout. */
#ifndef ERGON_TESTS_MEMORY_WORLD_H
#define ERGON_TESTS_MEMORY_WORLD_H

#include "check.h"
#include "kwai.h"

/* The published runs count one end token more than the 32004 words that they were told. */
static inline struct erg_model *load_model(const char *name, long vocabulary)
{
    struct erg_error err;
    struct erg_model *model = NULL;
    assert_ok(erg_model_load(&model, name, &err), &err);
    if (vocabulary)
        model->vocab = vocabulary;
    return model;
}

struct published {
    long sequence, gpus, batch, tensor, context, pipeline, layers; /* layers of a chunk */
    enum erg_recompute recompute;
    double offload;
};

/* Of the published peaks. */
static inline struct published published_cell(const struct kwai_cell *cell)
{
    return (struct published){8192, 256, 256, 2, 2, 8, 2, cell->recompute, cell->offload};
}

static inline struct erg_layout layout_of(const struct erg_model *model,
                                          const struct published *row)
{
    struct erg_error err;
    struct erg_layout layout = {.tensor = row->tensor,
                                .context = row->context,
                                .pipeline = row->pipeline,
                                .virtual_stages = model->layers / (row->pipeline * row->layers),
                                .microbatch = 1,
                                .sequence = row->sequence,
                                .recompute = row->recompute,
                                .offload = row->offload};
    assert_ok(erg_layout_fill(&layout, row->gpus, row->batch, &err), &err);
    assert_ok(erg_layout_check(&layout, model, &err), &err);
    return layout;
}

static inline struct erg_memory_sizes sizes_of(const struct erg_model *model,
                                               const struct erg_layout *layout)
{
    struct erg_memory_sizes sizes;
    erg_memory_sizes_of(&sizes, model, layout);
    return sizes;
}

/* The stage that needs most in closed form. */
static inline struct erg_memory_stage closed_worst(const struct erg_memory_request *request,
                                                   long *where)
{
    struct erg_memory_sizes sizes = sizes_of(request->model, request->layout);
    struct erg_memory_stage worst = {0}, stage;
    for (long i = 0; i < request->layout->pipeline; i++) {
        erg_memory_closed(&stage, request, &sizes, i);
        if (stage.peak_bytes > worst.peak_bytes) {
            worst = stage;
            *where = i;
        }
    }
    return worst;
}

#endif
