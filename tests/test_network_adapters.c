/* Network adapters that the GPUs of a node share: messages of few GPUs, collectives of all. */
#include "layout/search/layout_search.h"
#include "memory_world.h"
#include "time_world.h"

/* Four nodes of eight H200 with one adapter of 100 Gbit/s each, or with a share for each GPU. */
static struct erg_cluster nodes(double adapters)
{
    return (struct erg_cluster){.nodes = 4,
                                .gpus_per_node = 8,
                                .inter_node_bandwidth = 12.5e9,
                                .adapters_per_node = adapters};
}

static struct erg_time_machine machine_of(double adapters, double shared)
{
    const struct erg_gpu gpu = {.memory_bandwidth = 4.8e12, .link_bandwidth = 450e9};
    struct erg_cluster cluster = nodes(adapters);
    struct erg_time_machine machine;
    cluster.shared_link_bandwidth = shared;
    erg_time_machine_init(&machine, &gpu, &cluster);
    return machine;
}

static struct erg_layout gpt3_layout(long tensor, long pipeline)
{
    return (struct erg_layout){.tensor = tensor,
                               .context = 1,
                               .pipeline = pipeline,
                               .data = 32 / tensor / pipeline,
                               .virtual_stages = 1,
                               .microbatch = 1,
                               .microbatches = 128,
                               .sequence = 2048,
                               .recompute = ERG_RECOMPUTE_FULL};
}

/* Seconds of the message over the boundary of the first node. */
static double message_s(const struct erg_model *model, double adapters, double shared, long tensor,
                        long pipeline)
{
    const struct erg_engine engine = published_engine();
    const struct erg_time_machine machine = machine_of(adapters, shared);
    const struct erg_time_request request = {model, &engine, &machine};
    const struct erg_layout layout = gpt3_layout(tensor, pipeline);
    struct erg_time_parts parts;
    struct erg_time_place place;
    erg_time_parts_of(&parts, &request, &layout, 32);
    erg_time_place_init(&place, &request, &parts, &layout, 1e9);
    return erg_time_hop_after(&place, &layout, 8 / tensor - 1).time_s;
}

static void messages(void **state)
{
    (void)state;
    struct erg_model *model = load_model("gpt3-175b", 0);
    const double hidden = 2048 * 12288.0 * 2; /* of all tensor ranks */
    const struct {
        double adapters;
        long tensor, pipeline;
        double gpus; /* that share 12.5 GB/s */
    } cases[] = {
        {0, 8, 4, 8}, {0, 4, 8, 8}, {0, 2, 16, 8}, /* each has an eighth, whoever sends */
        {8, 8, 4, 8}, {8, 4, 8, 8}, {8, 2, 16, 8}, /* said so */
        {1, 8, 4, 8}, {1, 4, 8, 4}, {1, 2, 16, 2}, {1, 1, 32, 1},
        {2, 8, 4, 8}, {2, 4, 8, 8}, {2, 2, 16, 4}, /* half of it, of four GPUs or two */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_close(message_s(model, cases[i].adapters, 0, cases[i].tensor, cases[i].pipeline),
                     hidden / (double)cases[i].tensor * cases[i].gpus / 12.5e9, 1e-12);
    /* No faster than what copies share with it. */
    assert_close(message_s(model, 1, 4e9, 1, 32), hidden / 4e9, 1e-12);
    erg_model_free(model);
}

/* Of all GPUs of a node each has its share, with one adapter or eight. */
static void collectives(void **state)
{
    (void)state;
    struct erg_model *model = load_model("gpt3-175b", 0);
    const struct erg_engine engine = published_engine();
    const long groups[][2] = {{8, 4}, {1, 32}, {2, 16}, {4, 8}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        double rates[2];
        for (int one = 0; one < 2; one++) {
            const struct erg_time_machine machine = machine_of(one, 0);
            const struct erg_time_request request = {model, &engine, &machine};
            rates[one] = erg_time_group_bandwidth(&request, groups[i][0], groups[i][1], 32);
        }
        assert_near(rates[0], rates[1], 0);
        assert_close(rates[0], 12.5e9 / (double)groups[i][0], 1e-12);
    }
    erg_model_free(model);
}

/* Only messages of stages that are less than a node are faster, and so is the iteration. */
static void iterations(void **state)
{
    (void)state;
    struct erg_model *model = load_model("gpt3-175b", 0);
    struct erg_engine engine = published_engine();
    const long degrees[][2] = {{8, 4}, {4, 8}, {2, 16}, {1, 32}};
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        const struct erg_layout layout = gpt3_layout(degrees[i][0], degrees[i][1]);
        struct erg_time times[3];
        for (int k = 0; k < 3; k++) {
            const struct erg_time_machine machine = machine_of(k == 2 ? 8 : k, 0);
            const struct erg_time_request request = {model, &engine, &machine};
            erg_time_layout(&times[k], &request, &layout);
        }
        assert_memory_equal(&times[0], &times[2], sizeof times[0]);
        if (degrees[i][0] == 8)
            assert_memory_equal(&times[0], &times[1], sizeof times[0]);
        else
            assert_true(times[1].total < times[0].total);
    }
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(collectives),
        cmocka_unit_test(iterations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
