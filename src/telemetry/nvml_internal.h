/*
 * NVML as this room calls it: our own declarations of the types, constants and entry points that we
 * use, so that no vendor header is needed to build. Private to the room.
 *
 * Facts from NVIDIA's public nvml.h (CUDA 12 and 13).
 */
#ifndef ERG_TELEMETRY_NVML_INTERNAL_H
#define ERG_TELEMETRY_NVML_INTERNAL_H

#include "telemetry/gpu_internal.h"

enum { NVML_LINKS_MAX = 36, NVML_COUNTERS = 4 };

typedef struct nvml_device_opaque *nvml_device;
typedef struct nvml_events_opaque *nvml_events;

enum nvml_result {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_TIMEOUT = 10,
    NVML_FUNCTION_NOT_FOUND = 13,
    NVML_GPU_IS_LOST = 15,
    NVML_RESET_REQUIRED = 16,
    NVML_NO_NUMBER = 1000, /* our own: a field of unknown type, or a double that is not a number */
};

enum nvml_value_type {
    NVML_TYPE_DOUBLE = 0,
    NVML_TYPE_UNSIGNED_INT = 1,
    NVML_TYPE_UNSIGNED_LONG = 2,
    NVML_TYPE_UNSIGNED_LONG_LONG = 3,
    NVML_TYPE_SIGNED_LONG_LONG = 4,
    NVML_TYPE_SIGNED_INT = 5,
    NVML_TYPE_UNSIGNED_SHORT = 6,
};

enum nvml_field_id {
    NVML_FIELD_VIOLATION_POWER = 74,
    NVML_FIELD_VIOLATION_THERMAL = 75,
    NVML_FIELD_MEMORY_TEMPERATURE = 82,
    NVML_FIELD_ENERGY = 83,
    NVML_FIELD_NVLINK_COUNT = 91,
    NVML_FIELD_NVLINK_DATA_TX = 138, /* KiB */
    NVML_FIELD_NVLINK_DATA_RX = 139,
    NVML_FIELD_POWER_AVERAGE = 185,
    NVML_FIELD_POWER_INSTANT = 186,
    NVML_FIELD_POWER_LIMIT_MIN = 187,
    NVML_FIELD_POWER_LIMIT_MAX = 188,
    NVML_FIELD_POWER_LIMIT_DEFAULT = 189,
    NVML_FIELD_POWER_LIMIT_REQUESTED = 192,
    NVML_FIELD_PCIE_TX = 197, /* bytes */
    NVML_FIELD_PCIE_RX = 198,
    NVML_FIELD_NVLINK_BYTES_TX = 202, /* bytes, newer GPUs */
    NVML_FIELD_NVLINK_BYTES_RX = 204,
};

/* Scopes of a field: the part of the GPU for power, the link for NVLink. */
enum { NVML_SCOPE_GPU = 0, NVML_SCOPE_MODULE = 1, NVML_SCOPE_MEMORY = 2 };
#define NVML_SCOPE_ALL_LINKS UINT32_MAX

union nvml_value {
    double d;
    uint32_t ui;
    unsigned long ul;
    unsigned long long ull;
    long long sll;
    int32_t si;
    uint16_t us;
};

struct nvml_field {
    uint32_t id;
    uint32_t scope;
    int64_t timestamp_us; /* since 1970 */
    int64_t latency_us;
    int32_t type;   /* enum nvml_value_type */
    int32_t result; /* enum nvml_result */
    union nvml_value value;
};

struct nvml_pci { /* version 3; version 2 is a prefix of it */
    char legacy_id[16];
    uint32_t domain, bus, device;
    uint32_t ids[2];
    char id[32];
};

struct nvml_utilisation {
    uint32_t gpu, memory; /* % */
};

struct nvml_violation {
    unsigned long long reference_us; /* since 1970 */
    unsigned long long violation_ns;
};

struct nvml_temperature { /* version 1 */
    uint32_t version;
    uint32_t sensor;
    int32_t value;
};

struct nvml_margin { /* version 1 */
    uint32_t version;
    int32_t value;
};

struct nvml_event {
    nvml_device device;
    unsigned long long type, data;
    uint32_t gpu_instance, compute_instance;
};

/* The first member of a structure contains its size and version. */
#define NVML_VERSION(type, version) ((uint32_t)(sizeof(type) | (version) << 24))

enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2 };
enum { NVML_SENSOR_GPU = 0 };
enum { NVML_THRESHOLD_SLOWDOWN = 1, NVML_THRESHOLD_OPERATING = 3 };
enum { NVML_POLICY_POWER = 0, NVML_POLICY_THERMAL = 1 };
enum { NVML_ECC_CORRECTED = 0, NVML_ECC_UNCORRECTED = 1, NVML_ECC_VOLATILE = 0 };
#define NVML_EVENT_XID 0x8ull

/* The entry points; NULL if the library has none of the names (nvml.c lists them). */
struct nvml_calls {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int result);
    int (*driver_version)(char *text, uint32_t capacity);
    int (*device_count)(uint32_t *count);
    int (*device_by_index)(uint32_t index, nvml_device *device);
    int (*uuid)(nvml_device device, char *text, uint32_t capacity);
    int (*name)(nvml_device device, char *text, uint32_t capacity);
    int (*pci_info)(nvml_device device, struct nvml_pci *pci);
    int (*field_values)(nvml_device device, int count, struct nvml_field *fields);
    int (*total_energy)(nvml_device device, unsigned long long *energy_mj);
    int (*power)(nvml_device device, uint32_t *power_mw);
    int (*temperature_v)(nvml_device device, struct nvml_temperature *temperature);
    int (*temperature)(nvml_device device, int sensor, uint32_t *temperature_c);
    int (*margin)(nvml_device device, struct nvml_margin *margin);
    int (*threshold)(nvml_device device, int threshold, uint32_t *threshold_c);
    int (*clock)(nvml_device device, int type, uint32_t *clock_mhz);
    int (*reasons)(nvml_device device, unsigned long long *reasons);
    int (*utilisation)(nvml_device device, struct nvml_utilisation *utilisation);
    int (*violation)(nvml_device device, int policy, struct nvml_violation *violation);
    int (*enforced_limit)(nvml_device device, uint32_t *limit_mw);
    int (*ecc_errors)(nvml_device device, int type, int counter, unsigned long long *count);
    int (*events_create)(nvml_events *events);
    int (*events_register)(nvml_device device, unsigned long long types, nvml_events events);
    int (*events_wait)(nvml_events events, struct nvml_event *event, uint32_t timeout_ms);
    int (*events_free)(nvml_events events);
    int (*supported_memory_clocks)(nvml_device device, uint32_t *count, uint32_t *clocks_mhz);
    int (*supported_clocks)(nvml_device device, uint32_t memory_mhz, uint32_t *count,
                            uint32_t *clocks_mhz);
    int (*lock_clocks)(nvml_device device, uint32_t min_mhz, uint32_t max_mhz);
    int (*unlock_clocks)(nvml_device device);
    int (*lock_memory)(nvml_device device, uint32_t min_mhz, uint32_t max_mhz);
    int (*unlock_memory)(nvml_device device);
    int (*power_limit)(nvml_device device, uint32_t *limit_mw);
    int (*power_limit_default)(nvml_device device, uint32_t *limit_mw);
    int (*power_limit_bounds)(nvml_device device, uint32_t *least_mw, uint32_t *most_mw);
    int (*set_power_limit)(nvml_device device, uint32_t limit_mw);
    int (*persistence)(nvml_device device, int *on);
    int (*set_persistence)(nvml_device device, int on);
};

struct nvml_library {
    void *handle; /* dlopen's */
    struct nvml_calls calls;
};

/* A counter of 32 bits, followed through its wraps. */
struct nvml_wrap {
    bool seen;
    uint32_t last;
    int64_t last_ns;
    uint64_t sum; /* since the first read */
};

/* Where NVLink's bytes come from; found at the first read, as drivers and parts differ. */
enum nvml_links {
    NVML_LINKS_UNKNOWN,
    NVML_LINKS_TOGETHER,   /* one field for all links, KiB */
    NVML_LINKS_EACH,       /* a field per link, KiB */
    NVML_LINKS_EACH_BYTES, /* a field per link, bytes */
    NVML_LINKS_NONE,
};

/* State of one GPU; used by the thread that reads it. */
struct nvml_gpu {
    const struct nvml_calls *calls;
    nvml_device device;
    nvml_events events; /* NULL: critical errors are not reported */
    int64_t xid;
    uint32_t power_scope; /* NVML_SCOPE_MODULE on GPUs that report only that */
    enum nvml_links links;
    int links_result; /* why there are none: the first link's result */
    uint32_t link_count;
    struct nvml_wrap wraps[NVML_COUNTERS][NVML_LINKS_MAX];
    bool unsure[NVML_COUNTERS]; /* it may have wrapped unseen before its latest reading */
};

/*
 * Opens all GPUs of the list at once, each in a thread of its own; a failure is in the item's
 * info.trouble (nvml_open.c).
 */
void erg_nvml_open_gpus(struct erg_gpus *gpus);
void erg_nvml_gpu_free(struct nvml_gpu *state);

static inline struct nvml_gpu *nvml_state(const struct erg_gpu_query *at)
{
    return at->gpu->handle;
}

/* Stores why a metric is missing, by NVML's result (nvml_read.c). */
void erg_nvml_refuse(const struct erg_gpu_query *at, enum erg_metric metric, int result);
int erg_nvml_ask_fields(const struct erg_gpu_query *at, struct nvml_field *fields, int count);
int64_t erg_nvml_field_value(const struct nvml_field *field);

/* Reads the requested byte counters (nvml_bytes.c). */
void erg_nvml_read_pcie(const struct erg_gpu_query *at);
void erg_nvml_read_links(const struct erg_gpu_query *at);

/* The method `read` of the vendor (nvml_read.c). */
void erg_nvml_read(const struct erg_gpu_query *at);

/* The methods `clocks` of the vendor (nvml_clocks.c). */
extern const struct erg_clock_methods erg_nvml_clock_methods;

/* The methods `knobs` of the vendor (nvml_knobs.c). */
extern const struct erg_knob_methods erg_nvml_knob_methods;

/* The meaning of a result for a missing value; a literal. */
const char *erg_nvml_reason(int result);

#endif
