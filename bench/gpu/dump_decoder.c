/*
 * For a comparison with PyTorch by hand: runs forward and backward of one small decoder on this
 * GPU, embedding, one layer, head and loss, and writes every weight, input, output and gradient
 * into a folder, which bench/gpu/compare_torch.py computes again. One line per tensor in FOLDER/
 * tensors.txt: name, type (bf16, f32, i32), number of elements; its bytes are in FOLDER/NAME.bin.
 * FOLDER/model.txt has the shapes.
 *
 *   dump_decoder llama FOLDER      as Llama 3.2 3B, but for the vocabulary
 *   dump_decoder qwen3 FOLDER      as Qwen 3 1.7B: heads normalised, embedding and head tied
 */
#include "base/random.h"
#include "device/cuda/decoder.h"
#include "device/cuda/kernels.h"

#include "gpu_check.h"

enum { SEQUENCES = 2, SEQUENCE = 1024, TOKENS = SEQUENCES * SEQUENCE, VOCABULARY = 16384 };
enum { SEED = 11, IGNORED = 37 }; /* every so many targets one that is not counted */

static char llama_name[] = "llama", qwen_name[] = "qwen3", architecture[] = "test";

static struct erg_model models[] = {
    {
        .name = llama_name,
        .hidden = 3072,
        .heads = 24,
        .kv_heads = 8,
        .ffn = 8192,
        .norm_eps = 1e-5,
        .rope_theta = 500000,
    },
    {
        .name = qwen_name,
        .hidden = 2048,
        .heads = 16,
        .kv_heads = 8,
        .ffn = 6144,
        .norm_eps = 1e-6,
        .rope_theta = 1000000,
        .qk_norm = true,
        .tied = true,
    },
};

struct dump {
    const char *folder;
    FILE *list;
};

static FILE *open_file(const struct dump *dump, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dump->folder, name);
    FILE *file = fopen(path, "wb");
    if (!file) {
        printf("cannot write %s\n", path);
        exit(1);
    }
    return file;
}

static void write_host(struct dump *dump, const char *name, const char *type, size_t count,
                       size_t size, const void *values)
{
    char file_name[80];
    snprintf(file_name, sizeof file_name, "%s.bin", name);
    FILE *file = open_file(dump, file_name);
    if (fwrite(values, size, count, file) != count || fclose(file)) {
        printf("cannot write %s: is the disk full?\n", file_name);
        exit(1);
    }
    fprintf(dump->list, "%s %s %zu\n", name, type, count);
}

static void write_gpu(struct dump *dump, const char *name, bool bf16, size_t count,
                      const void *memory)
{
    size_t size = bf16 ? sizeof(erg_bf16) : sizeof(float);
    void *values = gpu_download(memory, count * size);
    write_host(dump, name, bf16 ? "bf16" : "f32", count, size, values);
    free(values);
}

static bool has_own(const struct erg_model *model, enum erg_decoder_weight weight)
{
    return weight != ERG_WEIGHT_HEAD || !model->tied;
}

/* Norms are 1 in a new decoder: other values show that they are multiplied with. */
static void vary_norms(const struct erg_decoder *decoder)
{
    static const enum erg_decoder_weight norms[] = {ERG_WEIGHT_NORM_A, ERG_WEIGHT_NORM_M,
                                                    ERG_WEIGHT_Q_NORM, ERG_WEIGHT_K_NORM,
                                                    ERG_WEIGHT_NORM_FINAL};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        struct erg_decoder_tensor tensor = erg_decoder_tensor(decoder, 0, norms[i]);
        if (tensor.count)
            gpu_ok(erg_cuda_random_normal(tensor.count, 1, 0.1F, SEED + 100 + i, tensor.weight,
                                          NULL, &gpu_error));
    }
}

static void write_tokens(struct dump *dump, struct erg_decoder *decoder)
{
    int32_t *ids = erg_xcalloc(TOKENS, sizeof *ids), *targets = erg_xcalloc(TOKENS, sizeof *ids);
    struct erg_rng rng;
    erg_rng_seed(&rng, SEED);
    for (size_t i = 0; i < TOKENS; i++) {
        ids[i] = (int32_t)erg_rng_below(&rng, VOCABULARY);
        targets[i] = i % IGNORED ? (int32_t)erg_rng_below(&rng, VOCABULARY) : -1;
    }
    gpu_ok(erg_decoder_set_tokens(decoder, ids, targets, NULL, &gpu_error));
    write_host(dump, "ids", "i32", TOKENS, sizeof *ids, ids);
    write_host(dump, "targets", "i32", TOKENS, sizeof *targets, targets);
    free(ids);
    free(targets);
}

static void write_weights(struct dump *dump, const struct erg_decoder *decoder,
                          const struct erg_model *model, bool gradients)
{
    for (int i = 0; i < ERG_ALL_WEIGHTS; i++) {
        struct erg_decoder_tensor tensor =
            erg_decoder_tensor(decoder, 0, (enum erg_decoder_weight)i);
        if (!tensor.count || !has_own(model, (enum erg_decoder_weight)i))
            continue;
        char name[64];
        snprintf(name, sizeof name, "%s%s", gradients ? "d_" : "", tensor.name);
        write_gpu(dump, name, !gradients, tensor.count,
                  gradients ? (const void *)tensor.gradient : tensor.weight);
    }
}

static void write_model(struct dump *dump, const struct erg_model *model)
{
    FILE *file = open_file(dump, "model.txt");
    fprintf(file,
            "sequences %d\nsequence %d\nhidden %ld\nheads %ld\nkv_heads %ld\nhead_dim %ld\n"
            "ffn %ld\nvocab %ld\nnorm_eps %g\nrope_theta %g\nqk_norm %d\ntied %d\n",
            SEQUENCES, SEQUENCE, model->hidden, model->heads, model->kv_heads, model->head_dim,
            model->ffn, model->vocab, model->norm_eps, model->rope_theta, model->qk_norm,
            model->tied);
    fclose(file);
}

static struct erg_model *find_model(const char *name)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strcmp(models[i].name, name)) {
            models[i].architecture = architecture;
            models[i].layers = 1;
            models[i].head_dim = 128;
            models[i].vocab = VOCABULARY;
            models[i].gated = true;
            return &models[i];
        }
    printf("there is no model %s here; expected llama or qwen3\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        printf("usage: dump_decoder llama|qwen3 FOLDER\n");
        return 2;
    }
    struct erg_model *model = find_model(argv[1]);
    struct dump dump = {.folder = argv[2]};
    dump.list = open_file(&dump, "tensors.txt");
    struct erg_cuda cuda = gpu_open();
    struct erg_cudnn *cudnn;
    struct erg_gemm *gemm;
    struct erg_decoder *decoder;
    gpu_ok(erg_cudnn_open(&cudnn, &cuda, NULL, &gpu_error));
    gpu_ok(erg_gemm_open(&gemm, &gpu_error));
    struct erg_decoder_options options = {
        .cuda = &cuda,
        .cudnn = cudnn,
        .gemm = gemm,
        .model = model,
        .layers = 1,
        .sequences = SEQUENCES,
        .sequence = SEQUENCE,
        .embedding = true,
        .head = true,
        .seed = SEED,
    };
    gpu_ok(erg_decoder_open(&decoder, &options, &gpu_error));
    vary_norms(decoder);
    write_model(&dump, model);
    write_tokens(&dump, decoder);
    write_weights(&dump, decoder, model, false);
    gpu_ok(erg_decoder_pass(decoder, NULL, &gpu_error));
    struct erg_decoder_ends ends = erg_decoder_ends(decoder);
    float *loss = gpu_download(ends.loss, sizeof *loss);
    size_t count = ends.tokens * ends.hidden;
    write_host(&dump, "loss", "f32", 1, sizeof *loss, loss);
    write_gpu(&dump, "input", true, count, ends.input);
    write_gpu(&dump, "output", true, count, ends.output);
    write_gpu(&dump, "d_output", true, count, ends.output_gradient);
    write_gpu(&dump, "d_input", true, count, ends.input_gradient);
    write_weights(&dump, decoder, model, true);
    fclose(dump.list);
    printf("%s: loss %.5f, written to %s\n", model->name, (double)*loss, dump.folder);
    free(loss);
    gpu_ok(erg_decoder_close(decoder, &gpu_error));
    erg_gemm_close(gemm);
    erg_cudnn_close(cudnn);
    return 0;
}
