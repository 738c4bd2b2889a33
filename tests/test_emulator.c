/* The exact model of the emulated GPU: golden rows, properties, measured data. */
#include "check.h"

#include "device/emulated/emulated.h"
#include "gpu_literals.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct erg_op forward_attention[] = {
    {ERG_OP_MEMORY, 2, 0, 553648128, 0, 0},
    {ERG_OP_GEMM, 1, 64424509440, 125566976, 3072, 640},
    {ERG_OP_MEMORY, 3, 0, 75497472, 0, 0},
    {ERG_OP_ATTENTION_FORWARD, 1, 51539607552, 33554432, 0, 0},
    {ERG_OP_GEMM, 1, 38654705664, 115605504, 384, 3072},
};
static const struct erg_op forward_mlp[] = {
    {ERG_OP_MEMORY, 2, 0, 553648128, 0, 0},
    {ERG_OP_GEMM, 1, 206158430208, 180355072, 3072, 2048},
    {ERG_OP_MEMORY, 1, 0, 100663296, 0, 0},
    {ERG_OP_GEMM, 1, 103079215104, 140509184, 1024, 3072},
};
static const struct erg_op backward_mlp[] = {
    {ERG_OP_MEMORY, 3, 0, 855638016, 0, 0},
    {ERG_OP_GEMM, 1, 103079215104, 140509184, 3072, 1024},
    {ERG_OP_GEMM, 1, 103079215104, 165675008, 16384, 192},
    {ERG_OP_MEMORY, 1, 0, 167772160, 0, 0},
    {ERG_OP_GEMM, 1, 206158430208, 180355072, 2048, 3072},
    {ERG_OP_GEMM, 1, 206158430208, 230686720, 16384, 384},
};
static const struct erg_op hopper_mlp[] = {
    {ERG_OP_MEMORY, 1, 0, 201326592, 0, 0},
    {ERG_OP_GEMM, 1, 412316860416, 260046848, 3072, 2048},
    {ERG_OP_MEMORY, 1, 0, 268435456, 0, 0},
    {ERG_OP_GEMM, 1, 206158430208, 180355072, 2048, 1536},
};

static struct erg_step step_of(const struct erg_op *ops, size_t count, double wire_bytes,
                               size_t slot, int sms)
{
    return (struct erg_step){
        .task = {ops, count, {ERG_COMM_ALLREDUCE, wire_bytes, 8, false}},
        .launch = {slot, sms},
    };
}

struct golden {
    const struct erg_op *ops;
    size_t count, slot;
    int sms, clock_mhz;
    double wire_bytes, time_ms, energy_j, power_w, clock_effective_mhz,
        exposed_ms; /* < 0: not given */
};

static void check_golden(const struct erg_gpu *gpu, const struct erg_stack *stack,
                         const struct golden *rows, size_t count)
{
    struct erg_error err;
    for (size_t i = 0; i < count; i++) {
        const struct golden *row = &rows[i];
        struct erg_step step = step_of(row->ops, row->count, row->wire_bytes, row->slot, row->sms);
        struct erg_emulated_result result;
        assert_ok(erg_emulated_run(gpu, stack, &step, 1, row->clock_mhz, &result, &err), &err);
        assert_close(result.time_s * 1e3, row->time_ms, 1e-4);
        assert_close(result.energy_j, row->energy_j, 1e-4);
        assert_close(result.power_w, row->power_w, 1e-4);
        assert_near(result.clock_effective_mhz, row->clock_effective_mhz, 0.1);
        if (row->exposed_ms >= 0)
            assert_near(result.exposed_s * 1e3, row->exposed_ms, 1e-4);
    }
}

static void a100_golden_rows(void **state)
{
    (void)state;
    const double wire = 176160768;
    const struct golden rows[] = {
        {forward_attention, 5, 0, 3, 1410, wire, 2.079646, 0.599501, 288.271, 1410, 0.147315},
        {forward_attention, 5, 1, 6, 1410, wire, 1.892032, 0.570307, 301.425, 1410, 0},
        {forward_attention, 5, 1, 20, 1410, wire, 1.920318, 0.590939, 307.730, 1410, 0},
        {forward_attention, 5, 1, 1, 1410, wire, 5.367620, 1.136956, 211.818, 1410, 3.528246},
        {forward_attention, 5, 2, 12, 1200, wire, 2.074905, 0.456157, 219.845, 1200, 0},
        {forward_attention, 5, 0, 3, 990, wire, 2.440539, 0.450777, 184.704, 990, 0},
        {forward_mlp, 4, 1, 9, 1410, wire, 2.332869, 0.878363, 376.516, 1406.97, 0},
        {forward_mlp, 4, 0, 6, 990, wire, 3.074924, 0.674526, 219.363, 990, 0},
        {forward_mlp, 4, 3, 3, 1410, wire, 3.412217, 1.053706, 308.804, 1410, 1.120017},
        {forward_mlp, 4, 2, 30, 1410, wire, 2.554556, 0.942743, 369.044, 1408.85, 0.176215},
        {forward_mlp, 4, 0, 0, 1410, 0, 2.049488, 0.803755, 392.174, 1382.00, 0},
        {NULL, 0, 0, 6, 1410, wire, 1.273775, 0.204908, 160.866, 1410, 1.003038},
        {backward_mlp, 6, 1, 9, 1410, wire, 4.067535, 1.595493, 392.251, 1381.61, 0},
        {backward_mlp, 6, 1, 9, 1380, wire, 4.088206, 1.574127, 385.041, 1371.04, -1},
        {backward_mlp, 6, 1, 9, 1350, wire, 4.134871, 1.529941, 370.009, 1348.26, -1},
        {backward_mlp, 6, 1, 9, 1320, wire, 4.196240, 1.476698, 351.910, 1319.72, -1},
        {backward_mlp, 6, 1, 9, 1290, wire, 4.263192, 1.423113, 333.814, 1290.00, -1},
    };
    struct erg_gpu gpu = a100_40();
    struct erg_stack stack = published_stack();
    check_golden(&gpu, &stack, rows, COUNT(rows));
}

static void h200_golden_rows(void **state)
{
    (void)state;
    const double wire = 150994944;
    const struct golden rows[] = {
        {hopper_mlp, 4, 0, 4, 1980, wire, 1.869001, 1.073230, 574.226, 1980, -1},
        {hopper_mlp, 4, 0, 16, 1980, wire, 1.212199, 0.841154, 693.907, 1703.87, -1},
        {hopper_mlp, 4, 1, 8, 1980, wire, 1.526087, 1.019599, 668.113, 1979.65, -1},
        {hopper_mlp, 4, 1, 1, 1980, wire, 6.764746, 1.835262, 271.298, 1980, -1},
        {hopper_mlp, 4, 2, 32, 1980, wire, 1.252397, 0.869037, 693.899, 1748.75, -1},
        {hopper_mlp, 4, 3, 4, 1980, wire, 2.486959, 1.168914, 470.017, 1980, -1},
        {hopper_mlp, 4, 4, 16, 1980, wire, 1.461243, 1.005355, 688.014, 1970.61, -1},
    };
    struct erg_gpu gpu = h200();
    struct erg_stack stack = plain_stack();
    check_golden(&gpu, &stack, rows, COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a100_golden_rows),
        cmocka_unit_test(h200_golden_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
