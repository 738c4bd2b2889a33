/*
 * Chooses the algorithm of a product for a whole run: times cuBLASLt's own answers and others of
 * the same family in this GPU's steady state, and stores the result in a file.
 */
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "device/cuda/gemm_internal.h"
#include "device/cuda/kernels.h"
#include "io/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_CANDIDATES = 256,
    FINALISTS = 8, /* timed in the steady state */
    ROUNDS = 2,
    ROWS = 24, /* of the result to compare */
    REVISION = 1,
    FILE_LIMIT_BYTES = 1 << 16,
};
/* Smaller products are not worth the seconds. */
static const double least_flop = 5e10;
/* A GPU at its power limit takes some tens of milliseconds to find its clock for a kernel. */
static const double settle_ms = 40, timing_ms = 80;
/* An algorithm that took longer than the fastest by this factor is not timed again. */
static const double margin = 1.02;
static const double tolerance = 1e-2; /* for bf16 rounding with another order of sums */

struct contender {
    cublasLtMatmulAlgo_t algorithm;
    double ms;
};

struct search {
    struct erg_gemm_trial trial;
    struct contender items[MAX_CANDIDATES];
    size_t count;
    void *memory;                  /* holds operands and workspace */
    size_t rows, row_bytes, bytes; /* of c */
    char *expected;                /* ROWS rows of c, by cuBLASLt's first answer */
};

/* ---- candidates ---- */

static bool is_known(const struct search *s, const cublasLtMatmulAlgo_t *algorithm)
{
    for (size_t i = 0; i < s->count; i++)
        if (memcmp(&s->items[i].algorithm, algorithm, sizeof *algorithm) == 0)
            return true;
    return false;
}

/* Adds an algorithm if it can compute this product. */
static void add(struct search *s, const cublasLtMatmulAlgo_t *algorithm)
{
    const struct erg_gemm *gemm = s->trial.gemm;
    const struct erg_gemm_product *p = s->trial.product;
    cublasLtMatmulHeuristicResult_t result;
    if (s->count < MAX_CANDIDATES && !is_known(s, algorithm) &&
        gemm->library.algorithm_check(gemm->handle, p->desc, p->a, p->b, p->c, p->c, algorithm,
                                      &result) == CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= ERG_GEMM_WORKSPACE_BYTES)
        s->items[s->count++].algorithm = *algorithm;
}

static bool configure(const struct erg_cublaslt *library, cublasLtMatmulAlgo_t *algorithm,
                      uint32_t tile, uint16_t cluster, uint32_t custom)
{
    return !library->algorithm_set(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile) &&
           !library->algorithm_set(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster,
                                   sizeof cluster) &&
           !library->algorithm_set(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &custom,
                                   sizeof custom);
}

/*
 * The heuristics return only a few of the tile sizes of a family of kernels. On H100 at its power
 * limit others, such as 128 x 176, compute the products of a 1B model up to 9 % faster.
 */
static void add_family(struct search *s, const cublasLtMatmulAlgo_t *member)
{
    static const uint32_t tiles[] = {
        CUBLASLT_MATMUL_TILE_128x160, CUBLASLT_MATMUL_TILE_128x168, CUBLASLT_MATMUL_TILE_128x176,
        CUBLASLT_MATMUL_TILE_128x192, CUBLASLT_MATMUL_TILE_128x256, CUBLASLT_MATMUL_TILE_176x128,
        CUBLASLT_MATMUL_TILE_192x112, CUBLASLT_MATMUL_TILE_192x192, CUBLASLT_MATMUL_TILE_256x128,
        CUBLASLT_MATMUL_TILE_256x136, CUBLASLT_MATMUL_TILE_256x144};
    static const uint16_t clusters[] = {CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1};
    enum { MOST_CUSTOM = 7 };
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (size_t k = 0; k < sizeof clusters / sizeof *clusters; k++)
            for (uint32_t custom = 0; custom <= MOST_CUSTOM; custom++) {
                cublasLtMatmulAlgo_t algorithm = *member;
                if (configure(&s->trial.gemm->library, &algorithm, tiles[i], clusters[k], custom))
                    add(s, &algorithm);
            }
}

static void collect(struct search *s)
{
    const struct erg_gemm_product *p = s->trial.product;
    for (size_t i = 0; i < p->count; i++)
        s->items[s->count++].algorithm = p->answers[i].algo;
    add_family(s, &p->answers[0].algo);
}

/* ---- memory ---- */

static size_t element_bytes(const struct erg_gemm_shape *shape) /* of c */
{
    return shape->kind == ERG_GEMM_WEIGHT_GRADIENT ? sizeof(float) : sizeof(erg_bf16);
}

static size_t rounded(size_t bytes)
{
    return (bytes + ERG_GEMM_CHOICE_ALIGNMENT - 1) / ERG_GEMM_CHOICE_ALIGNMENT *
           ERG_GEMM_CHOICE_ALIGNMENT;
}

/* Random operands: products of zeros draw less power and are faster. */
static int make_operands(struct search *s, const struct erg_gemm_shape *shape,
                         struct erg_error *err)
{
    const size_t x = shape->tokens * shape->inputs, y = shape->tokens * shape->outputs;
    const size_t weight = shape->inputs * shape->outputs;
    const bool adds = shape->kind == ERG_GEMM_WEIGHT_GRADIENT;
    const size_t a = shape->kind == ERG_GEMM_INPUT_GRADIENT ? y : x, b = adds ? y : weight;
    s->rows = adds ? shape->outputs : shape->tokens;
    s->row_bytes = shape->kind == ERG_GEMM_FORWARD ? shape->outputs * sizeof(erg_bf16)
                                                   : shape->inputs * element_bytes(shape);
    s->bytes = s->rows * s->row_bytes;
    const size_t sizes[] = {rounded(a * sizeof(erg_bf16)), rounded(b * sizeof(erg_bf16)),
                            rounded(s->bytes)};
    if (erg_cuda_alloc(&s->memory, sizes[0] + sizes[1] + sizes[2] + ERG_GEMM_WORKSPACE_BYTES, err))
        return -1;
    char *on_a = s->memory, *on_b = on_a + sizes[0], *on_c = on_b + sizes[1];
    s->trial.operands = (struct erg_gemm_operands){on_a, on_b, NULL, on_c, false};
    s->trial.workspace = on_c + sizes[2];
    return erg_cuda_random_normal(a, 0, 1, 1, (erg_bf16 *)on_a, s->trial.stream, err) ||
                   erg_cuda_random_normal(b, 0, 0.02F, 2, (erg_bf16 *)on_b, s->trial.stream, err)
               ? -1
               : 0;
}

/* ---- results ---- */

/* Computes some rows of the product by an algorithm, from the first to the last. */
static int compute_rows(const struct search *s, const cublasLtMatmulAlgo_t *algorithm, char *rows,
                        struct erg_error *err)
{
    const struct erg_gemm_trial *trial = &s->trial;
    const bool adds = trial->product->shape.kind == ERG_GEMM_WEIGHT_GRADIENT;
    /* Outputs without accumulation must be written completely: all bits set are NaN. */
    if (erg_cuda_fill(trial->operands.c, adds ? 0 : 0xff, s->bytes, trial->stream, err) ||
        erg_gemm_enqueue(trial->gemm, trial->product, algorithm, &trial->operands, 0,
                         trial->workspace, trial->stream, err))
        return -1;
    for (size_t i = 0; i < ROWS; i++) {
        const size_t row = i * (s->rows - 1) / (ROWS - 1);
        if (erg_cuda_copy(rows + i * s->row_bytes,
                          (const char *)trial->operands.c + row * s->row_bytes, s->row_bytes,
                          trial->stream, err))
            return -1;
    }
    return erg_cuda_stream_sync(trial->stream, err);
}

static double value_at(const struct search *s, const char *rows, size_t i)
{
    float value;
    if (s->trial.product->shape.kind != ERG_GEMM_WEIGHT_GRADIENT) {
        erg_bf16 narrow;
        memcpy(&narrow, rows + i * sizeof narrow, sizeof narrow);
        return (double)erg_bf16_float(narrow);
    }
    memcpy(&value, rows + i * sizeof value, sizeof value);
    return (double)value;
}

/* Checks that an algorithm gives the same result as cuBLASLt's first answer. */
static int check_result(const struct search *s, const cublasLtMatmulAlgo_t *algorithm, bool *sound,
                        struct erg_error *err)
{
    const size_t values = ROWS * s->row_bytes / element_bytes(&s->trial.product->shape);
    char *rows = erg_xmalloc(ROWS * s->row_bytes);
    double distance = 0, size = 0;
    int result = compute_rows(s, algorithm, rows, err);
    for (size_t i = 0; i < values && result == 0; i++) {
        const double expected = value_at(s, s->expected, i);
        distance += pow(value_at(s, rows, i) - expected, 2);
        size += expected * expected;
    }
    *sound = result == 0 && distance <= tolerance * tolerance * size;
    free(rows);
    return result;
}

/* ---- timing ---- */

static int by_time(const void *a, const void *b)
{
    const double left = ((const struct contender *)a)->ms,
                 right = ((const struct contender *)b)->ms;
    return (left > right) - (left < right);
}

/*
 * Times each once, after a run that loads the kernel; keeps the fastest and cuBLASLt's first. Drops
 * algorithms that fail, even the first.
 */
static int preselect(struct search *s, struct erg_error *err)
{
    size_t run = 0;
    bool first_runs = false;
    for (size_t i = 0; i < s->count; i++)
        if (erg_gemm_trial_time(&s->trial, &s->items[i].algorithm, 1, 1, &s->items[i].ms, err) ==
            0) {
            first_runs = first_runs || i == 0;
            s->items[run++] = s->items[i];
        }
    if (run == 0)
        return -1;
    const struct contender first = s->items[0];
    qsort(s->items, run, sizeof *s->items, by_time);
    s->count = run < FINALISTS ? run : FINALISTS;
    if (first_runs && !is_known(s, &first.algorithm))
        s->items[s->count - 1] = first;
    return 0;
}

/*
 * Times each long enough that the GPU's power limit sets the clock for that algorithm alone: with
 * short alternating runs, those of low power would be slowed down by the others.
 */
static int time_finalists(struct search *s, double once, struct erg_error *err)
{
    const int lead = (int)(settle_ms / once) + 1, repeats = (int)(timing_ms / once) + 1;
    size_t timed = s->count;
    double ms;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < timed; i++) {
            struct contender *item = &s->items[i];
            if (erg_gemm_trial_time(&s->trial, &item->algorithm, lead, repeats, &ms, err))
                return -1;
            item->ms = round == 0 ? ms : (item->ms * round + ms) / (round + 1);
            erg_progress("the fastest products", (size_t)round * s->count + i + 1,
                         ROUNDS * s->count);
        }
        qsort(s->items, timed, sizeof *s->items, by_time);
        while (timed > 1 && s->items[timed - 1].ms > margin * s->items[0].ms)
            timed--;
    }
    return 0;
}

/* The fastest algorithm with the right result. */
static int find_best(struct search *s, cublasLtMatmulAlgo_t *best, struct erg_error *err)
{
    const struct erg_gemm_shape *shape = &s->trial.product->shape;
    const cublasLtMatmulAlgo_t first = s->trial.product->answers[0].algo;
    double once;
    size_t all;
    collect(s);
    all = s->count;
    s->expected = erg_xmalloc(ROWS * s->row_bytes);
    if (compute_rows(s, &first, s->expected, err) || erg_gemm_trial_heat(&s->trial, &once, err) ||
        preselect(s, err) || time_finalists(s, once, err))
        return -1;
    bool sound = false;
    double first_ms = 0;
    for (size_t i = 0; i < s->count; i++)
        if (memcmp(&s->items[i].algorithm, &first, sizeof first) == 0)
            first_ms = s->items[i].ms;
    for (size_t i = 0; i < s->count && !sound; i++) {
        *best = s->items[i].algorithm;
        if (check_result(s, best, &sound, err))
            return -1;
        if (sound)
            erg_log(
                ERG_LOG_DEBUG,
                "%s, %zu tokens, %zu -> %zu: the best of %zu algorithms takes %.4f ms, cuBLASLt's "
                "first %.4f",
                erg_gemm_kind_name(shape->kind), shape->tokens, shape->inputs, shape->outputs, all,
                s->items[i].ms, first_ms);
    }
    if (!sound)
        *best = first;
    return 0;
}

static int search(struct erg_gemm *gemm, const struct erg_gemm_shape *shape,
                  cublasLtMatmulAlgo_t *best, struct erg_error *err)
{
    struct search *s = erg_xcalloc(1, sizeof *s);
    s->trial.gemm = gemm;
    int result =
        erg_cuda_stream_new(&s->trial.stream, false, err) || make_operands(s, shape, err) ||
                erg_gemm_find(gemm, &s->trial.product, shape, &s->trial.operands, false, err) ||
                erg_gemm_trial_begin(&s->trial, err) || find_best(s, best, err)
            ? -1
            : 0;
    erg_gemm_trial_end(&s->trial);
    erg_cuda_free(s->memory);
    erg_cuda_stream_free(s->trial.stream);
    free(s->expected);
    free(s);
    return result;
}

/* ---- files ---- */

/* The inputs that determine a choice, in one line; the caller frees it. */
static char *choice_key(const struct erg_gemm *gemm, const struct erg_cuda *cuda,
                        const struct erg_gemm_shape *shape)
{
    struct erg_text key = {0};
    erg_text_printf(&key,
                    "ergon product %s, revision %d, cuBLASLt %zu, %s, %d SMs, %zu tokens, "
                    "%zu inputs, %zu outputs",
                    erg_gemm_kind_name(shape->kind), REVISION, gemm->library.version(), cuda->name,
                    cuda->sms, shape->tokens, shape->inputs, shape->outputs);
    return key.data;
}

static char *choice_path(const char *folder, const char *key)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/product-%016" PRIx64 ".plan", folder, erg_hash_text(key));
    return path.data;
}

/* The words of an algorithm, and a checksum of these and the key. */
static void write_choice(struct erg_text *text, const char *key,
                         const cublasLtMatmulAlgo_t *algorithm)
{
    struct erg_text words = {0};
    erg_text_printf(&words, "%s\n", key);
    for (size_t i = 0; i < sizeof algorithm->data / sizeof *algorithm->data; i++)
        erg_text_printf(&words, "%016" PRIx64 "\n", algorithm->data[i]);
    erg_text_printf(text, "%s%016" PRIx64 "\n", words.data, erg_hash_text(words.data));
    erg_text_release(&words);
}

/* False: there is none, or it is damaged or for something else. */
static bool read_choice(const char *path, const char *key, cublasLtMatmulAlgo_t *algorithm)
{
    char *text;
    struct erg_text again = {0};
    if (erg_file_read(path, FILE_LIMIT_BYTES, &text, NULL, NULL) != 0)
        return false;
    const char *at = strchr(text, '\n');
    for (size_t i = 0; at && i < sizeof algorithm->data / sizeof *algorithm->data; i++) {
        algorithm->data[i] = strtoull(at + 1, NULL, 16);
        at = strchr(at + 1, '\n');
    }
    write_choice(&again, key, algorithm);
    const bool same = strcmp(text, again.data) == 0;
    erg_text_release(&again);
    free(text);
    return same;
}

static void keep_choice(const char *folder, const char *path, const char *key,
                        const cublasLtMatmulAlgo_t *algorithm)
{
    struct erg_error why;
    struct erg_text text = {0};
    write_choice(&text, key, algorithm);
    if (erg_dir_make(folder, &why) != 0 || erg_file_write(path, text.data, text.count, &why) != 0)
        erg_log(ERG_LOG_DEBUG, "%s is not stored (%s)", key, why.message);
    erg_text_release(&text);
}

/* ---- choice ---- */

int erg_gemm_choose(struct erg_gemm *gemm, const struct erg_cuda *cuda, const char *folder,
                    const struct erg_gemm_shape *shape, struct erg_error *err)
{
    const double flop = 2. * (double)shape->tokens * (double)shape->inputs * (double)shape->outputs;
    if (flop < least_flop || erg_gemm_chosen(gemm, shape))
        return 0;
    char *key = choice_key(gemm, cuda, shape), *path = folder ? choice_path(folder, key) : NULL;
    cublasLtMatmulAlgo_t algorithm;
    int result = 0;
    if (!path || !read_choice(path, key, &algorithm)) {
        erg_log(ERG_LOG_INFO, "looking for the fastest %s", key + strlen("ergon "));
        result = search(gemm, shape, &algorithm, err);
        if (result == 0 && path)
            keep_choice(folder, path, key, &algorithm);
    }
    if (result == 0)
        erg_gemm_adopt(gemm, &(struct erg_gemm_choice){*shape, algorithm});
    free(path);
    free(key);
    return result;
}
