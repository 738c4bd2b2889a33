/*
 * AMD GPUs for telemetry/gpu.h, from the files of Linux' amdgpu driver in sysfs.
 *
 * AMD SMI reads the same files. Its structures change from release to release; the files do not,
 * and they exist without ROCm. So ergon reads them directly. Power, limits, clocks, temperatures
 * and utilisation are numbers in text (hwmon); energy, bytes over XGMI and throttling come from
 * gpu_metrics, a table whose layout depends on its revision (amdgpu_table.c).
 *
 * PCIe counters, memory power and critical errors are missing: the driver does not provide them, or
 * takes a second. Clocks cannot be locked. Written from the kernel's documentation
 * (gpu/amdgpu/thermal) and headers (kgd_pp_interface.h, amdgpu_smu.h of Linux 6.18), and tested on
 * a made-up tree only: it has never run on a real AMD GPU.
 */
#include "telemetry/amdgpu_internal.h"

#include "base/memory.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* A GPU's address on the PCI bus: the name of its folder. */
struct address {
    unsigned domain, bus, device, function;
};

static bool parse_address(const char *name, struct address *address)
{
    int length = 0;
    return sscanf(name, "%x:%x:%x.%x%n", &address->domain, &address->bus, &address->device,
                  &address->function, &length) == 4 &&
           name[length] == '\0';
}

static int open_folder(int folder, const char *name)
{
    return openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The folder of sensors, hwmon/hwmonN, with an unknown number N; -1: none. */
static int open_hwmon(int device)
{
    int list = open_folder(device, "hwmon"), found = -1;
    DIR *listing = list < 0 ? NULL : fdopendir(list);
    if (!listing)
        return -1;
    for (struct dirent *entry; found < 0 && (entry = readdir(listing)) != NULL;)
        if (strncmp(entry->d_name, "hwmon", 5) == 0)
            found = open_folder(list, entry->d_name);
    closedir(listing);
    return found;
}

/*
 * Which sensor is which. The hottest spot of the die slows it down. GPUs that do not report it have
 * one sensor, which has no label on the oldest.
 */
static void label_temperatures(struct amdgpu_gpu *state)
{
    int edge = 0;
    state->die = state->memory = -1;
    for (int i = 0; i < AMDGPU_TEMPERATURES; i++) {
        char name[16], label[32];
        snprintf(name, sizeof name, "temp%d_label", i + 1);
        if (erg_amdgpu_read_text(state->hwmon, name, label, sizeof label) != 0)
            continue;
        if (strcmp(label, "junction") == 0)
            state->die = i;
        else if (strcmp(label, "mem") == 0)
            state->memory = i;
        else if (strcmp(label, "edge") == 0)
            edge = i;
    }
    if (state->die < 0)
        state->die = edge;
}

static void describe(int device, const struct address *address, const char *driver,
                     struct erg_gpu_info *info)
{
    char text[80];
    snprintf(info->vendor, sizeof info->vendor, "AMD");
    snprintf(info->driver, sizeof info->driver, "%s", driver);
    snprintf(info->pci, sizeof info->pci, "%08x:%02x:%02x.%x", address->domain, address->bus,
             address->device, address->function);
    if (erg_amdgpu_read_text(device, "product_name", text, sizeof text) == 0 && text[0])
        snprintf(info->name, sizeof info->name, "%s", text);
    else if (erg_amdgpu_read_text(device, "device", text, sizeof text) == 0)
        snprintf(info->name, sizeof info->name, "AMD GPU %s", text);
    /* As ROCm writes it. GPUs without a unique number use their PCI address. */
    if (erg_amdgpu_read_text(device, "unique_id", text, sizeof text) == 0 && text[0])
        snprintf(info->uuid, sizeof info->uuid, "GPU-%s", text);
    else
        snprintf(info->uuid, sizeof info->uuid, "GPU-%s", info->pci);
}

static void amdgpu_close(struct erg_gpus *gpus)
{
    for (size_t i = 0; i < gpus->opened; i++) {
        struct amdgpu_gpu *state = gpus->items[i].handle;
        if (!state)
            continue;
        close(state->device);
        if (state->hwmon >= 0)
            close(state->hwmon);
        free(state);
    }
}

static const char *const visible[] = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", NULL};
static const struct erg_vendor amd = {
    .visible = visible, .read = erg_amdgpu_read, .close = amdgpu_close};

/* The GPU in a folder of `root`. */
static void open_gpu(struct erg_open_gpu *gpu, int root, const char *name, const char *driver)
{
    struct address address;
    parse_address(name, &address);
    int device = open_folder(root, name);
    if (device < 0) {
        snprintf(gpu->info.vendor, sizeof gpu->info.vendor, "AMD");
        snprintf(gpu->info.trouble, sizeof gpu->info.trouble, "its folder %s: %s", name,
                 strerror(errno));
        return;
    }
    struct amdgpu_gpu *state = erg_xcalloc(1, sizeof *state);
    state->device = device;
    state->hwmon = open_hwmon(device);
    label_temperatures(state);
    describe(device, &address, driver, &gpu->info);
    gpu->handle = state;
}

/* The version of the module if it was built outside the kernel, otherwise that of the kernel. */
static void find_driver(int root, char *driver, size_t size)
{
    struct utsname system;
    char version[64];
    if (erg_amdgpu_read_text(root, "module/version", version, sizeof version) == 0 && version[0])
        snprintf(driver, size, "amdgpu %s", version);
    else
        snprintf(driver, size, "amdgpu of Linux %s", uname(&system) == 0 ? system.release : "");
}

static int by_address(const struct dirent **a, const struct dirent **b)
{
    struct address x, y;
    parse_address((*a)->d_name, &x);
    parse_address((*b)->d_name, &y);
    unsigned differences[][2] = {
        {x.domain, y.domain}, {x.bus, y.bus}, {x.device, y.device}, {x.function, y.function}};
    for (int i = 0; i < 4; i++)
        if (differences[i][0] != differences[i][1])
            return differences[i][0] < differences[i][1] ? -1 : 1;
    return 0;
}

static int is_gpu(const struct dirent *entry)
{
    struct address address;
    return parse_address(entry->d_name, &address);
}

int erg_amdgpu_open(struct erg_gpus **out, const char *root, struct erg_error *err)
{
    if (!root)
        root = getenv("ERGON_AMDGPU");
    if (!root)
        root = "/sys/bus/pci/drivers/amdgpu";
    struct dirent **entries;
    int count = scandir(root, &entries, is_gpu, by_address);
    if (count < 0)
        return erg_fail(err, ERG_NO_DEVICE,
                        "looking for AMD GPUs: '%s': %s; expected the folder of a loaded amdgpu "
                        "driver",
                        root, strerror(errno));
    int folder = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (count == 0 || folder < 0) {
        free(entries);
        return erg_fail(err, ERG_NO_DEVICE, "looking for AMD GPUs: '%s' shows none, expected one",
                        root);
    }
    char driver[sizeof((struct erg_gpu_info *)0)->driver];
    find_driver(folder, driver, sizeof driver);
    struct erg_gpus *gpus = erg_gpus_new(&amd, (size_t)count);
    for (int i = 0; i < count; i++) {
        open_gpu(&gpus->items[i], folder, entries[i]->d_name, driver);
        gpus->items[i].info.index = i;
        free(entries[i]);
    }
    free(entries);
    close(folder);
    *out = gpus;
    return 0;
}
