/* Composition of partitions into instruction options: exact, against brute force. */
#include "check.h"

#include "base/random.h"
#include "microbatch/microbatch.h"

enum { CLOCKS = 3, TYPES = 4, CONFIGS = 6, LAYERS = 5 };

struct random_tables {
    struct erg_frontier frontiers[TYPES][CLOCKS];
    struct erg_partition_table tables[TYPES];
};

static void make_tables(struct random_tables *random, uint64_t seed)
{
    struct erg_rng rng;
    erg_rng_seed(&rng, seed);
    memset(random, 0, sizeof *random);
    for (int k = 0; k < TYPES; k++) {
        for (int c = 0; c < CLOCKS; c++)
            for (int i = 0; i < CONFIGS; i++) {
                double t = 1e-3 * (1 + c * 0.2 + 0.5 * erg_rng_uniform(&rng));
                double e = 0.3 * (1 - c * 0.1 + 0.3 * erg_rng_uniform(&rng));
                erg_frontier_add(&random->frontiers[k][c], t, e, 100 * k + i);
            }
        random->tables[k] = (struct erg_partition_table){
            .occurrences = 1 + k % 2, .kernels = 7, .clocks = random->frontiers[k]};
    }
}

static void free_tables(struct random_tables *random)
{
    for (int k = 0; k < TYPES; k++)
        for (int c = 0; c < CLOCKS; c++)
            erg_frontier_release(&random->frontiers[k][c]);
}

/* Cost of one choice of configurations, straight from the definition. */
static struct erg_cost direct(const struct random_tables *random, int clock, const int *choice,
                              const struct erg_host_model *host, const struct erg_cost *fixed)
{
    struct erg_cost layer = {0, 0};
    int kernels = 0;
    for (int k = 0; k < TYPES; k++) {
        const struct erg_point *p = &random->frontiers[k][clock].points[choice[k]];
        layer.time_s += random->tables[k].occurrences * p->time_s;
        layer.energy_j += random->tables[k].occurrences * p->energy_j;
        kernels += random->tables[k].occurrences * random->tables[k].kernels;
    }
    double floor_s = host->host_per_kernel_s * kernels;
    double t = pow(pow(layer.time_s, 6) + pow(floor_s, 6), 1.0 / 6);
    layer.energy_j += host->static_power_w * (t - layer.time_s);
    return (struct erg_cost){LAYERS * t + fixed[clock].time_s,
                             LAYERS * layer.energy_j + fixed[clock].energy_j};
}

static void composition_equals_brute_force(void **state)
{
    (void)state;
    const double blocking_w = 85;
    const struct erg_cost fixed[CLOCKS] = {{2e-3, 0.9}, {2.2e-3, 0.8}, {2.4e-3, 0.7}};
    const struct erg_host_model hosts[] = {{0, 0}, {120e-6, 60}};
    for (uint64_t seed = 1; seed <= 10; seed++) {
        const struct erg_host_model *host = &hosts[seed % 2];
        struct random_tables random;
        make_tables(&random, seed);
        struct erg_frontier brute = {0};
        int choice[TYPES];
        for (int c = 0; c < CLOCKS; c++)
            for (int code = 0; code < CONFIGS * CONFIGS * CONFIGS * CONFIGS; code++) {
                int rest = code;
                for (int k = 0; k < TYPES; k++, rest /= CONFIGS)
                    choice[k] = rest % CONFIGS;
                struct erg_cost cost = direct(&random, c, choice, host, fixed);
                erg_frontier_add(&brute, cost.time_s, cost.energy_j - blocking_w * cost.time_s,
                                 code);
            }
        erg_frontier_filter(&brute);

        struct erg_layer *layer = erg_layer_compose(random.tables, TYPES, CLOCKS, host, blocking_w);
        struct erg_microbatch microbatch = {0};
        erg_microbatch_add_overlap(&microbatch, layer, LAYERS, fixed);
        erg_microbatch_filter(&microbatch, blocking_w);
        assert_int_equal(microbatch.count, brute.count);
        for (size_t i = 0; i < brute.count; i++) {
            const struct erg_microbatch_option *option = &microbatch.options[i];
            assert_close(option->time_s, brute.points[i].time_s, 1e-12);
            assert_close(option->energy_j - blocking_w * option->time_s, brute.points[i].energy_j,
                         1e-12);
            for (int k = 0; k < TYPES; k++) { /* the recipe leads back to the same cost */
                assert_true(option->configurations[k] / 100 == k);
                choice[k] = (int)(option->configurations[k] % 100);
            }
            struct erg_cost again = direct(&random, option->clock, choice, host, fixed);
            assert_close(option->time_s, again.time_s, 1e-12);
            assert_close(option->energy_j, again.energy_j, 1e-12);
        }
        erg_frontier_release(&brute);
        erg_microbatch_release(&microbatch);
        erg_layer_free(layer);
        free_tables(&random);
    }
}

static void whole_layers_compete_with_overlap_per_instruction(void **state)
{
    (void)state;
    struct erg_frontier at_clock[2] = {{0}, {0}};
    erg_frontier_add(&at_clock[0], 10e-3, 3.0, 1);
    erg_frontier_add(&at_clock[1], 12e-3, 2.9, 2);
    const struct erg_partition_table table = {.occurrences = 1, .kernels = 1, .clocks = at_clock};
    const struct erg_host_model no_host = {0, 0};
    const struct erg_cost none[2] = {{0, 0}, {0, 0}};
    const struct erg_cost sequential[2] = {{11e-3, 3.2}, {12.5e-3, 2.0}};
    struct erg_layer *layer = erg_layer_compose(&table, 1, 2, &no_host, 85);
    struct erg_microbatch microbatch = {0};
    erg_microbatch_add_overlap(&microbatch, layer, 2, none);
    erg_microbatch_add_whole(&microbatch, ERG_MODE_SEQUENTIAL, sequential, 1, 2, none, 2, &no_host);
    erg_microbatch_filter(&microbatch, 85);
    /* (20 ms, overlap), (24 ms, overlap), (25 ms, sequential); sequential at 22 ms is beaten. */
    assert_int_equal(microbatch.count, 3);
    assert_int_equal(microbatch.options[0].mode, ERG_MODE_OVERLAP);
    assert_int_equal(microbatch.options[0].configurations[0], 1);
    assert_int_equal(microbatch.options[2].mode, ERG_MODE_SEQUENTIAL);
    assert_int_equal(microbatch.options[2].clock, 1);
    assert_null(microbatch.options[2].configurations);
    assert_near(microbatch.options[2].time_s, 25e-3, 1e-15);
    erg_microbatch_release(&microbatch);
    erg_layer_free(layer);
    erg_frontier_release(&at_clock[0]);
    erg_frontier_release(&at_clock[1]);
}

static void a_clock_that_one_type_lacks_is_not_available(void **state)
{
    (void)state;
    struct random_tables random;
    make_tables(&random, 3);
    erg_frontier_clear(&random.frontiers[2][1]);
    const struct erg_host_model no_host = {0, 0};
    const struct erg_cost none[CLOCKS] = {{0, 0}, {0, 0}, {0, 0}};
    struct erg_layer *layer = erg_layer_compose(random.tables, TYPES, CLOCKS, &no_host, 85);
    struct erg_microbatch microbatch = {0};
    erg_microbatch_add_overlap(&microbatch, layer, 1, none);
    erg_microbatch_filter(&microbatch, 85);
    assert_true(microbatch.count > 0);
    for (size_t i = 0; i < microbatch.count; i++)
        assert_int_not_equal(microbatch.options[i].clock, 1);
    erg_microbatch_release(&microbatch);
    erg_layer_free(layer);
    free_tables(&random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(composition_equals_brute_force),
        cmocka_unit_test(whole_layers_compete_with_overlap_per_instruction),
        cmocka_unit_test(a_clock_that_one_type_lacks_is_not_available),
    };
    return cmocka_run_group_tests_name("microbatch", tests, NULL, NULL);
}
