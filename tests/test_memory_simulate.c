/* layout/memory, event by event: published peaks, and what must hold for any layout. */
#include "memory_world.h"

#include "base/random.h"

static struct erg_memory_result simulate(const struct erg_memory_request *request)
{
    struct erg_error err;
    struct erg_memory_result result;
    assert_ok(erg_memory_simulate(&result, request, &err), &err);
    return result;
}

static void published_peaks(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-65b", 32005);
    double sum = 0;
    for (int i = 0; i < KWAI_CELLS; i++) {
        const struct published row = published_cell(&kwai_cells[i]);
        struct erg_layout layout = layout_of(model, &row);
        struct erg_memory_request request = {
            .model = model, .layout = &layout, .accounting = ERG_MEMORY_FRAMEWORK};
        struct erg_memory_result result = simulate(&request);
        double peak = result.stages[result.worst].peak_bytes;
        assert_close(peak, kwai_cells[i].measured_bytes, 0.0015);
        assert_int_equal(result.worst, row.offload == 1.0 ? 7 : 0);
        sum += fabs(peak / kwai_cells[i].measured_bytes - 1);
        erg_memory_result_release(&result);
    }
    assert_true(sum / KWAI_CELLS < 0.0005);
    erg_model_free(model);
}

/* The items add up, also in the course of time, whose worst moment is the peak. */
static void check_sums(const struct erg_memory_result *result)
{
    for (long stage = 0; stage < result->count; stage++) {
        const struct erg_memory_stage *found = &result->stages[stage];
        const struct erg_memory_course *course = &result->courses[stage];
        double sum = 0, worst = 0;
        for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
            sum += found->items[i];
        assert_near(sum, found->peak_bytes, 0);
        for (size_t k = 0; k < course->count; k++) {
            sum = 0;
            for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
                sum += (double)course->steps[k].items[i];
            worst = fmax(worst, sum);
        }
        assert_close(worst, found->peak_bytes, 1e-6);
    }
}

/*
 * Any model on any layout: nothing is left over (the simulation asserts that), sums add up, the
 * framework needs no less than the arena, and the closed form is near.
 */
static void random_layouts(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-2-7b", "llama-2-70b", "qwen3-1.7b", "gpt3-175b"};
    struct erg_rng rng;
    struct erg_error err;
    int tried = 0;
    erg_rng_seed(&rng, 3);
    while (tried < 60) {
        struct erg_model *model = load_model(names[erg_rng_below(&rng, 4)], 0);
        struct erg_layout layout = {
            .tensor = 1L << erg_rng_below(&rng, 4),
            .context = 1L << erg_rng_below(&rng, 3),
            .pipeline = 1 + (long)erg_rng_below(&rng, 8),
            .data = 1 + (long)erg_rng_below(&rng, 3),
            .virtual_stages = 1 + (long)erg_rng_below(&rng, 3),
            .microbatch = 1 + (long)erg_rng_below(&rng, 2),
            .microbatches = 1 + (long)erg_rng_below(&rng, 24),
            .sequence = 2048,
            .recompute = (enum erg_recompute)erg_rng_below(&rng, 3),
        };
        layout.offload = layout.pipeline < 3 ? 0 : 0.25 * (double)erg_rng_below(&rng, 5);
        if (erg_layout_check(&layout, model, &err) != 0) {
            erg_model_free(model);
            continue;
        }
        tried++;
        struct erg_memory_request request = {
            .model = model, .layout = &layout, .accounting = ERG_MEMORY_ARENA};
        struct erg_memory_result arena = simulate(&request);
        long stage = -1;
        double closed = closed_worst(&request, &stage).peak_bytes;
        assert_close(closed, arena.stages[arena.worst].peak_bytes, 0.06);
        request.accounting = ERG_MEMORY_FRAMEWORK;
        struct erg_memory_result framework = simulate(&request);
        request.layer_copies = true;
        struct erg_memory_result layers = simulate(&request);
        check_sums(&layers);
        erg_memory_result_release(&layers);
        check_sums(&arena);
        check_sums(&framework);
        for (long i = 0; i < layout.pipeline; i++)
            assert_true(framework.stages[i].peak_bytes >= arena.stages[i].peak_bytes);
        erg_memory_result_release(&arena);
        erg_memory_result_release(&framework);
        erg_model_free(model);
    }
}

/* What is left out of a long iteration changes nothing. */
static void long_iterations_repeat(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-65b", 32005);
    const struct published row = {4096, 32, 272, 2, 1, 8, 2, ERG_RECOMPUTE_BALANCED, 0.544};
    struct erg_layout layout = layout_of(model, &row);
    struct erg_memory_request request = {
        .model = model, .layout = &layout, .accounting = ERG_MEMORY_FRAMEWORK};
    struct erg_memory_result longer = simulate(&request);
    assert_int_equal(layout.microbatches, 136);
    assert_int_equal(longer.microbatches, 32);
    layout.microbatches = 64;
    struct erg_memory_result shorter = simulate(&request);
    for (long i = 0; i < 8; i++)
        assert_near(longer.stages[i].peak_bytes, shorter.stages[i].peak_bytes, 0);
    assert_int_equal(longer.courses[0].count, 2 * 32 * 5);
    erg_memory_result_release(&longer);
    erg_memory_result_release(&shorter);
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_peaks),
        cmocka_unit_test(random_layouts),
        cmocka_unit_test(long_iterations_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
