/*
 * The CUDA device with locked clocks, on a real GPU and a fake NVML beside it (fake_nvml.so in this
 * program's folder): no clock of the real GPU is touched.
 */
#include "device/cuda/cuda_device.h"

#include "gpu_check.h"

#include <unistd.h>

static char test_name[] = "test", architecture[] = "LlamaForCausalLM";

static const struct erg_model model = {
    .name = test_name,
    .architecture = architecture,
    .layers = 1,
    .hidden = 256,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 64,
    .ffn = 512,
    .vocab = 1024,
    .norm_eps = 1e-5,
    .rope_theta = 10000,
    .gated = true,
};

static char folder[] = "/tmp/ergon-gpu-clocks-XXXXXX", script[64], log_path[64];

static void skip(const char *why)
{
    printf("skipped: %s\n", why);
    exit(GPU_SKIPPED);
}

/* A fake NVML with one GPU, at the real one's place on the PCI bus. */
static void take_fake(const struct erg_cuda *cuda)
{
    char library[4096];
    ssize_t length = readlink("/proc/self/exe", library, sizeof library - 32);
    unsigned domain, bus, device;
    if (length < 0 || sscanf(cuda->bus, "%x:%x:%x", &domain, &bus, &device) != 3)
        skip("the GPU's place on the PCI bus cannot be read");
    library[length] = '\0';
    snprintf(strrchr(library, '/'), 32, "/fake_nvml.so");
    if (access(library, R_OK) != 0)
        skip("fake_nvml.so is not in this program's folder");
    if (!mkdtemp(folder))
        skip("no temporary folder can be made");
    snprintf(script, sizeof script, "%s/script", folder);
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    FILE *file = fopen(script, "w");
    fprintf(file, "gpus 1\nlog %s\ngpu 0 place %u %u %u\n", log_path, domain, bus, device);
    fclose(file);
    setenv("ERGON_NVML", library, 1);
    setenv("ERGON_FAKE_NVML", script, 1);
    struct erg_gpus *gpus;
    gpu_ok(erg_gpus_open(&gpus, "all", &gpu_error));
    if (!strstr(erg_gpus_info(gpus, 0)->name, "Fake")) {
        printf("FAILED the fake NVML is not in place of the real one\n");
        exit(1);
    }
    erg_gpus_close(gpus);
}

/* The clock that the fake's log says GPU 0 is locked at; 0 = unlocked, -1 = never touched. */
static int locked_mhz(void)
{
    FILE *file = fopen(log_path, "r");
    char text[128];
    int low = -1;
    while (file && fgets(text, sizeof text, file))
        sscanf(text, "%*s %*s %*d %d", &low);
    if (file)
        fclose(file);
    return low;
}

static void check_lock(const char *what, int expected_mhz)
{
    int seen_mhz = locked_mhz();
    bool good = seen_mhz == expected_mhz;
    printf("%s %s: locked at %d MHz, expected %d\n", good ? "ok    " : "FAILED", what, seen_mhz,
           expected_mhz);
    gpu_failures += !good;
}

int main(void)
{
    struct erg_cuda cuda = gpu_open();
    take_fake(&cuda);
    struct erg_launch_environment env;
    struct erg_worker_options options = {
        .env = &env,
        .model = &model,
        .tensor = 1,
        .context = 1,
        .layers = 1,
        .sequences = 2,
        .sequence = 128,
        .seed = 1,
    };
    struct erg_device *device;
    gpu_ok(erg_launch_environment_read(&env, &gpu_error));
    gpu_ok(erg_rendezvous_open(&options.rendezvous, &env, 60, &gpu_error));

    gpu_ok(erg_cuda_device_open(&device, &options, false, &gpu_error));
    bool refused = erg_device_set_clock(device, 1200, &gpu_error) &&
                   gpu_error.status == ERG_NO_DEVICE && device->fixed_clock;
    printf("%s without being asked by name it refuses\n", refused ? "ok    " : "FAILED");
    gpu_failures += !refused;
    erg_device_close(device);
    check_lock("refused", -1);

    gpu_ok(erg_cuda_device_open(&device, &options, true, &gpu_error));
    check_lock("opened", 0);
    gpu_ok(erg_device_set_clock(device, 1200, &gpu_error));
    check_lock("set", 1200);
    gpu_ok(erg_device_set_clock(device, 0, &gpu_error));
    check_lock("given back", 0);
    gpu_ok(erg_device_set_clock(device, 990, &gpu_error));
    erg_device_close(device);
    check_lock("closed", 0);

    erg_rendezvous_close(options.rendezvous);
    unlink(script);
    unlink(log_path);
    rmdir(folder);
    return gpu_result();
}
