/* layout/memory, closed form: sizes from the model's tensors, published peaks and ratios. */
#include "check.h"
#include "kwai.h"

static const double GiB = 0x1p30, MiB = 0x1p20;

/* The published runs count one end token more than the 32004 words they were told. */
static struct erg_model *load(const char *name)
{
    struct erg_error err;
    struct erg_model *model = NULL;
    assert_ok(erg_model_load(&model, name, &err), &err);
    if (strstr(name, "llama"))
        model->vocab = 32005;
    return model;
}

static struct erg_layout layout_of(const struct erg_model *model, const struct kwai_row *row)
{
    struct erg_error err;
    struct erg_layout layout = {.tensor = row->tensor,
                                .context = row->context,
                                .pipeline = row->pipeline,
                                .virtual_stages = model->layers / (row->pipeline * row->layers),
                                .microbatch = 1,
                                .sequence = row->sequence,
                                .remat = row->remat,
                                .offload = row->offload};
    assert_ok(erg_layout_fill(&layout, row->gpus, row->batch, &err), &err);
    assert_ok(erg_layout_check(&layout, model, &err), &err);
    return layout;
}

static double closed_peak(const struct erg_memory_request *request, long *binding,
                          const char **moment)
{
    const struct erg_layout *layout = request->layout;
    struct erg_memory_sizes sizes;
    struct erg_memory_stage stage;
    double peak = 0;
    erg_memory_sizes_init(&sizes, request->model, layout->tensor, layout->context,
                          layout->microbatch, layout->sequence);
    for (long i = 0; i < layout->pipeline; i++) {
        erg_memory_closed(&stage, request, &sizes, i);
        if (stage.peak_bytes > peak) {
            peak = stage.peak_bytes;
            *binding = i;
            *moment = stage.moment;
        }
    }
    return peak;
}

static void published_cells(void **state)
{
    (void)state;
    struct erg_model *model = load("llama-65b");
    double sum = 0, worst = 0;
    for (int i = 0; i < KWAI_CELLS; i++) {
        const struct kwai_row row = {"llama-65b", 8192, 256, 256, 2, 2, 8, 2,
                                     kwai_cells[i].remat, kwai_cells[i].offload};
        struct erg_layout layout = layout_of(model, &row);
        struct erg_memory_request request = {model, &layout, ERG_MEMORY_FRAMEWORK};
        long stage = -1;
        const char *moment = NULL;
        double error = closed_peak(&request, &stage, &moment) / kwai_cells[i].measured_bytes - 1;
        printf("%-9s %.1f %+.2f%% stage %ld %s\n", erg_remat_name(row.remat), row.offload, 100 * error, stage, moment);
        sum += fabs(error);
        worst = fmax(worst, fabs(error));
    }
    printf("mean %.2f%% worst %.2f%%\n", 100 * sum / KWAI_CELLS, 100 * worst);
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_cells),
    };
    (void)GiB; (void)MiB;(void)kwai_rows;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
