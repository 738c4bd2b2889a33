/*
 * Products against ops/ops.h on odd shapes, with and without a bias; bounded to fewer SMs, the same
 * bits; the algorithms that are chosen, and kept as files.
 */
#include "device/cuda/gemm.h"

#include "gpu_check.h"
#include "ops/ops.h"

#include <dirent.h>
#include <unistd.h>

static const char *const kinds[] = {"forward", "input gradient", "weight gradient"};

/* What a product reads and writes, in elements. */
struct sizes {
    size_t a, b, c, c_bytes;
};

static struct sizes sizes_of(const struct erg_gemm_shape *s)
{
    size_t x = s->tokens * s->inputs, y = s->tokens * s->outputs, weight = s->inputs * s->outputs;
    switch (s->kind) {
    case ERG_GEMM_FORWARD:
        return (struct sizes){x, weight, y, y * sizeof(erg_bf16)};
    case ERG_GEMM_INPUT_GRADIENT:
        return (struct sizes){y, weight, x, x * sizeof(erg_bf16)};
    default:
        return (struct sizes){x, y, weight, weight * sizeof(float)};
    }
}

static void check_against_twin(struct erg_gemm *gemm, struct erg_rng *rng, void *workspace,
                               const struct erg_gemm_shape *s, bool biased)
{
    const struct sizes sizes = sizes_of(s);
    erg_bf16 *a = gpu_random(rng, sizes.a, 1), *b = gpu_random(rng, sizes.b, 1);
    void *c = erg_xcalloc(1, sizes.c_bytes);
    void *on_a = gpu_upload(a, sizes.a * sizeof *a), *on_b = gpu_upload(b, sizes.b * sizeof *b);
    void *on_c = gpu_upload(c, sizes.c_bytes);
    /* Two biases in turn: the product that is remembered takes the one of the call. */
    erg_bf16 *biases = gpu_random(rng, 2 * s->outputs, 4), *bias = biases;
    erg_bf16 *on_biases = gpu_upload(biases, 2 * s->outputs * sizeof *biases), *on_bias = on_biases;
    char name[128];
    snprintf(name, sizeof name, "%s%s, %zu tokens, %zu -> %zu", kinds[s->kind],
             biased ? " with bias" : "", s->tokens, s->inputs, s->outputs);
    /* Twice: gradients of weights add up. */
    for (int twice = 0; twice < 2; twice++) {
        gpu_ok(erg_gemm_run(gemm, s, on_a, on_b, biased ? on_bias : NULL, on_c, true,
                            twice ? 64 : 0, workspace, NULL, &gpu_error));
        if (s->kind == ERG_GEMM_FORWARD)
            erg_ops_linear_forward(s->tokens, s->inputs, s->outputs, a, b, biased ? bias : NULL, c);
        else if (s->kind == ERG_GEMM_INPUT_GRADIENT)
            erg_ops_linear_input_gradient(s->tokens, s->inputs, s->outputs, a, b, c);
        else
            erg_ops_linear_weight_gradient(s->tokens, s->inputs, s->outputs, a, b, c);
    }
    if (biased) {
        gpu_near_bf16(name, on_c, c, sizes.c, 1e-4 * sqrt((double)s->inputs));
        bias += s->outputs, on_bias += s->outputs;
        gpu_ok(
            erg_gemm_run(gemm, s, on_a, on_b, on_bias, on_c, true, 0, workspace, NULL, &gpu_error));
        erg_ops_linear_forward(s->tokens, s->inputs, s->outputs, a, b, bias, c);
    }
    if (s->kind == ERG_GEMM_WEIGHT_GRADIENT)
        gpu_near_float(name, on_c, c, sizes.c, 1e-4 * sqrt((double)s->tokens));
    else
        gpu_near_bf16(name, on_c, c, sizes.c, 1e-4 * sqrt((double)(s->inputs + s->outputs)));
    erg_cuda_free(on_a), erg_cuda_free(on_b), erg_cuda_free(on_c), erg_cuda_free(on_biases);
    free(a), free(b), free(c), free(biases);
}

/* A large random tensor out of copies of a small one. */
static void *upload_tiled(struct erg_rng *rng, size_t count)
{
    const size_t tile = 1 << 20;
    erg_bf16 *values = gpu_random(rng, tile, 1);
    erg_bf16 *memory = gpu_alloc(count * sizeof *memory);
    for (size_t at = 0; at < count; at += tile)
        gpu_ok(erg_cuda_copy(memory + at, values,
                             (count - at < tile ? count - at : tile) * sizeof *memory, NULL,
                             &gpu_error));
    free(values);
    return memory;
}

static void check_bounds(struct erg_gemm *gemm, struct erg_rng *rng, void *workspace, int all_sms,
                         const struct erg_gemm_shape *s)
{
    const struct sizes sizes = sizes_of(s);
    void *a = upload_tiled(rng, sizes.a), *b = upload_tiled(rng, sizes.b), *first = NULL;
    void *c = gpu_alloc(sizes.c_bytes);
    for (int left = 0; left <= 36; left += 4) {
        gpu_ok(erg_cuda_fill(c, 0, sizes.c_bytes, NULL, &gpu_error));
        gpu_ok(erg_gemm_run(gemm, s, a, b, NULL, c, true, all_sms - left, workspace, NULL,
                            &gpu_error));
        void *result = gpu_download(c, sizes.c_bytes);
        if (!first) {
            first = result;
            continue;
        }
        bool same = memcmp(result, first, sizes.c_bytes) == 0;
        printf("%s %s, %zu -> %zu, on %d SMs: the bits of %d SMs\n", same ? "ok    " : "FAILED",
               kinds[s->kind], s->inputs, s->outputs, all_sms - left, all_sms);
        gpu_failures += !same;
        free(result);
    }
    erg_cuda_free(a), erg_cuda_free(b), erg_cuda_free(c);
    free(first);
}

static void check_tuning(struct erg_gemm *gemm, struct erg_rng *rng, void *workspace)
{
    const struct erg_gemm_shape s = {ERG_GEMM_FORWARD, 4096, 3072, 2560};
    const struct sizes sizes = sizes_of(&s);
    void *a = upload_tiled(rng, sizes.a), *b = upload_tiled(rng, sizes.b);
    void *c = gpu_alloc(sizes.c_bytes);
    struct erg_gemm_timing timing;
    gpu_ok(erg_gemm_tune(gemm, &s, a, b, NULL, c, 0, workspace, NULL, &timing, &gpu_error));
    bool sound = timing.answers > 0 && timing.best < timing.answers && timing.best_ms > 0 &&
                 timing.best_ms <= timing.first_ms;
    printf("%s tuning: answer %zu of %zu, %.3f ms, the first %.3f ms\n",
           sound ? "ok    " : "FAILED", timing.best, timing.answers, timing.best_ms,
           timing.first_ms);
    gpu_failures += !sound;
    erg_cuda_free(a), erg_cuda_free(b), erg_cuda_free(c);
}

/* The distance of two results, relative to the second. */
static double distance(const void *got, const void *want, const struct sizes *sizes, bool wide)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < sizes->c; i++) {
        const double g =
            wide ? ((const float *)got)[i] : erg_bf16_float(((const erg_bf16 *)got)[i]);
        const double w =
            wide ? ((const float *)want)[i] : erg_bf16_float(((const erg_bf16 *)want)[i]);
        off += (g - w) * (g - w);
        size += w * w;
    }
    return sqrt(off / size);
}

/* Flips a digit in the middle of every file of a folder, or removes them all with it. */
static void change_files(const char *folder, bool remove_all)
{
    DIR *open_folder = opendir(folder);
    for (struct dirent *entry; open_folder && (entry = readdir(open_folder)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (*entry->d_name == '.')
            continue;
        FILE *file = remove_all ? NULL : fopen(path, "r+");
        if (file) {
            fseek(file, -40, SEEK_END);
            int digit = fgetc(file);
            fseek(file, -1, SEEK_CUR);
            fputc(digit == '0' ? '1' : '0', file);
            fclose(file);
        }
        if (remove_all)
            remove(path);
    }
    if (open_folder)
        closedir(open_folder);
    if (remove_all)
        rmdir(folder);
}

static void *choose_and_run(const struct erg_cuda *cuda, const char *folder,
                            const struct erg_gemm_shape *s, void *a, void *b, void *c,
                            size_t c_bytes, void *workspace)
{
    struct erg_gemm *gemm;
    gpu_ok(erg_gemm_open(&gemm, &gpu_error));
    if (folder)
        gpu_ok(erg_gemm_choose(gemm, cuda, folder, s, &gpu_error));
    gpu_ok(erg_cuda_fill(c, 0, c_bytes, NULL, &gpu_error));
    gpu_ok(erg_gemm_run(gemm, s, a, b, NULL, c, true, 0, workspace, NULL, &gpu_error));
    void *result = gpu_download(c, c_bytes);
    erg_gemm_close(gemm);
    return result;
}

/* What is chosen computes the same product; a second time it is read, and has the same bits. */
static void check_choice(const struct erg_cuda *cuda, struct erg_rng *rng, void *workspace,
                         const struct erg_gemm_shape *s)
{
    const struct sizes sizes = sizes_of(s);
    const bool wide = s->kind == ERG_GEMM_WEIGHT_GRADIENT;
    void *a = upload_tiled(rng, sizes.a), *b = upload_tiled(rng, sizes.b);
    void *c = gpu_alloc(sizes.c_bytes), *results[4];
    char folder[] = "/tmp/ergon-gemm-XXXXXX";
    if (!mkdtemp(folder)) {
        printf("FAILED no folder for choices\n");
        gpu_failures++;
        return;
    }
    for (int i = 0; i < 4; i++) {
        if (i == 3)
            change_files(folder, false);
        results[i] = choose_and_run(cuda, i ? folder : NULL, s, a, b, c, sizes.c_bytes, workspace);
    }
    const double chosen = distance(results[1], results[0], &sizes, wide);
    const double anew = distance(results[3], results[0], &sizes, wide);
    const bool same = memcmp(results[1], results[2], sizes.c_bytes) == 0;
    const bool sound = chosen < 5e-3 && anew < 5e-3 && same;
    printf("%s %s chosen: distance %.1e, from a damaged file %.1e, read again %s bits\n",
           sound ? "ok    " : "FAILED", kinds[s->kind], chosen, anew, same ? "the same" : "other");
    gpu_failures += !sound;
    for (int i = 0; i < 4; i++)
        free(results[i]);
    change_files(folder, true);
    erg_cuda_free(a), erg_cuda_free(b), erg_cuda_free(c);
}

int main(void)
{
    struct erg_cuda cuda = gpu_open();
    struct erg_gemm *gemm;
    struct erg_rng rng;
    erg_rng_seed(&rng, 1);
    gpu_ok(erg_gemm_open(&gemm, &gpu_error));
    void *workspace = gpu_alloc(ERG_GEMM_WORKSPACE_BYTES);
    const size_t shapes[][3] = {{1, 8, 8}, {333, 264, 520}, {77, 1000, 136}, {128, 128, 256}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < 3; kind++) {
            const struct erg_gemm_shape s = {(enum erg_gemm_kind)kind, shapes[i][0], shapes[i][1],
                                             shapes[i][2]};
            check_against_twin(gemm, &rng, workspace, &s, false);
            if (kind == ERG_GEMM_FORWARD)
                check_against_twin(gemm, &rng, workspace, &s, true);
        }
    for (int kind = 0; kind < 3; kind++) {
        const struct erg_gemm_shape s = {(enum erg_gemm_kind)kind, 8192, 3072, 4096};
        check_bounds(gemm, &rng, workspace, cuda.sms, &s);
    }
    check_tuning(gemm, &rng, workspace);
    for (int kind = 0; kind < 3; kind++) {
        const struct erg_gemm_shape s = {(enum erg_gemm_kind)kind, 8192, 2048, 3072};
        check_choice(&cuda, &rng, workspace, &s);
    }
    erg_cuda_free(workspace);
    erg_gemm_close(gemm);
    return gpu_result();
}
