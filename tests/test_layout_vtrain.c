/* The time model against measured iterations of GPT models on A100 nodes, in the shared data. */
#include "vtrain.h"

static const char cluster_path[] = ERGON_TEST_SOURCE_DIR "/data/clusters/64x8-a100-sxm4-80gb.yaml";

/* Of the rows of a table that are not in the third: the mean error. */
static double held_out(const struct erg_fit_rows *table, size_t third,
                       const struct erg_engine *engine, const struct erg_time_machine *machine)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++) {
        double time_s;
        if (i % 3 == third)
            continue;
        erg_fit_predict(&time_s, &table->items[i], 1, engine, machine);
        sum += fabs(time_s / table->items[i].time_s - 1);
        count++;
    }
    return sum / (double)count;
}

/* Whichever third is fitted, eight constants predict the other two: 6 % on a node, 10 % on several.
 * From the first third come those of the committed engine. */
static void any_third_predicts_the_others(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_fit_rows tables[2] = {0};
    struct erg_cluster *cluster;
    struct erg_gpu *gpu;
    struct erg_engine *committed;
    struct erg_time_machine machine;
    if (!read_table(&tables[0], "vtrain/single_node.csv") ||
        !read_table(&tables[1], "vtrain/multi_node.csv"))
        skip();
    assert_ok(erg_cluster_load(&cluster, cluster_path, &err), &err);
    assert_ok(erg_gpu_load(&gpu, cluster->gpu, &err), &err);
    assert_ok(erg_engine_load(&committed, "megatron-a100", &err), &err);
    erg_time_machine_init(&machine, gpu, cluster);
    struct erg_engine start = *committed;
    guess(&start);
    for (size_t third = 0; third < 3; third++) {
        struct erg_fit_rows rows = {0};
        struct erg_fit fit;
        for (int t = 0; t < 2; t++)
            for (size_t i = third; i < tables[t].count; i += 3)
                ERG_PUSH(&rows, items, tables[t].items[i]);
        const struct erg_fit_request request = {rows.items,  rows.count, &machine, &start,
                                                fitted_keys, 2,          NULL};
        assert_ok(erg_fit_engine(&fit, &request, &err), &err);
        double node = held_out(&tables[0], third, &fit.engine, &machine);
        double several = held_out(&tables[1], third, &fit.engine, &machine);
        print_message("third %zu fitted: the others are off by %.2f %% and %.2f %%\n", third + 1,
                      100 * node, 100 * several);
        assert_true(node <= 0.06);
        assert_true(several <= 0.1);
        for (const struct erg_quantity *at = erg_engine_numbers; third == 0 && at->key; at++)
            assert_near(erg_engine_get(&fit.engine, at), erg_engine_get(committed, at),
                        2e-3 * erg_engine_get(committed, at));
        free(rows.items);
    }
    erg_fit_rows_release(&tables[0]);
    erg_fit_rows_release(&tables[1]);
    erg_engine_free(committed);
    erg_gpu_free(gpu);
    erg_cluster_free(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_third_predicts_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
