"""The public headers for ctypes. Written by make_abi.py: do not edit."""

import ctypes as c

ERG_BACKWARD = 1
ERG_BACKWARD_WEIGHT = 2
ERG_CATEGORIES = 8
ERG_CATEGORY_ALL_GATHER = 2
ERG_CATEGORY_ALL_REDUCE = 4
ERG_CATEGORY_LAYERNORM = 6
ERG_CATEGORY_MATMUL = 0
ERG_CATEGORY_MEMORY = 5
ERG_CATEGORY_OTHER = 7
ERG_CATEGORY_REDUCE_SCATTER = 3
ERG_CATEGORY_SEND_RECV = 1
ERG_COUNTER_MISSING = 1
ERG_COUNTER_RESET = 3
ERG_COUNTER_STILL = 2
ERG_COUNTER_USED = 0
ERG_ENERGY_ESTIMATED = 2
ERG_ENERGY_MEASURED = 1
ERG_ENERGY_MISSING = 0
ERG_ENERGY_POWER_ONLY = 3
ERG_FAILED = 1
ERG_FORWARD = 0
ERG_HOOK_ABI = 1
ERG_HOOK_CAUSE_ASKED = 5
ERG_HOOK_CAUSE_NONE = 0
ERG_HOOK_CAUSE_POWER_BRAKE = 3
ERG_HOOK_CAUSE_POWER_CAP = 4
ERG_HOOK_CAUSE_THERMAL = 2
ERG_HOOK_CAUSE_UNKNOWN = 1
ERG_HOOK_FOLLOW = 1
ERG_HOOK_LEASE_DIRECT = 1
ERG_HOOK_LEASE_ENDED = 2
ERG_HOOK_LEASE_NONE = 0
ERG_HOOK_OBSERVE = 0
ERG_HOOK_PROFILE = 2
ERG_INFEASIBLE = 3
ERG_INTERRUPTED = 130
ERG_JOB_MOST_BATCH = 100000
ERG_JOB_MOST_MICROBATCHES = 10000
ERG_LAUNCH_MOST_RANKS = 4096
ERG_MARK_EVENTS = 1
ERG_MARK_HOST = 0
ERG_MARK_MEMORY = 2
ERG_METER_GPUS_MAX = 32
ERG_NO_DEVICE = 4
ERG_OK = 0
ERG_OTHER = 3
ERG_RESUMABLE = 85
ERG_STYLE_BAD = 5
ERG_STYLE_FAINT = 2
ERG_STYLE_GOOD = 3
ERG_STYLE_PLAIN = 0
ERG_STYLE_STRONG = 1
ERG_STYLE_WARNING = 4
ERG_SUPERSEDED = 86
ERG_TRAIN_ANY = 0
ERG_TRAIN_BFLOAT16 = 0
ERG_TRAIN_DONE = 1
ERG_TRAIN_FLOAT32 = 1
ERG_TRAIN_GOES_ON = 0
ERG_TRAIN_GPU = 1
ERG_TRAIN_HOST = 2
ERG_TRAIN_STOPPED = 2
ERG_TRAIN_TIME_UP = 3
ERG_TUNE_BUDGET = 4
ERG_TUNE_CLOCK = 2
ERG_TUNE_COST = 2
ERG_TUNE_DONE = 1
ERG_TUNE_ENERGY = 0
ERG_TUNE_FAILED = 2
ERG_TUNE_MEASURING = 0
ERG_TUNE_NONE = 0
ERG_TUNE_POWER = 1
ERG_TUNE_SLOWDOWN = 3
ERG_TUNE_TIME = 1
ERG_USAGE = 2
ERG_VERSION_MAJOR = 0
ERG_VERSION_MINOR = 2
ERG_VERSION_PATCH = 0
ERG_WATCH_DEBUG = 3
ERG_WATCH_ERROR = 0
ERG_WATCH_INFO = 2
ERG_WATCH_WARNING = 1
ERG_WORDS_ACCOUNTING = 1
ERG_WORDS_CATEGORIES = 2
ERG_WORDS_DEVICE = 3
ERG_WORDS_EXPORT = 4
ERG_WORDS_FORMAT = 5
ERG_WORDS_OBJECTIVE = 6
ERG_WORDS_PICK = 7
ERG_WORDS_PLANNER = 8
ERG_WORDS_RECOMPUTE = 9
ERG_WORDS_RIGHT = 10
ERG_WORDS_SEARCH = 11
ERG_WORDS_SENSOR = 12
ERG_WORDS_STUDY_DEVICE = 13
ERG_WORDS_TRAIN_TYPE = 14

erg_hook_exchange = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t)


class erg_ask_calculon(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("model", c.c_char_p),
        ("system", c.c_char_p),
        ("folder", c.c_char_p),
        ("gpus", c.c_int64),
        ("batch", c.c_int64),
        ("watch", c.c_void_p),
    ]


class erg_ask_daemon(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("socket", c.c_char_p),
    ]


class erg_ask_doctor(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("gpus", c.c_char_p),
        ("watch", c.c_void_p),
    ]


class erg_ask_fit(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("rows", c.c_char_p),
        ("runs", c.c_void_p),
        ("run_count", c.c_size_t),
        ("engine", c.c_char_p),
        ("job", c.c_char_p),
        ("cluster", c.c_char_p),
        ("keys", c.c_char_p),
        ("output", c.c_char_p),
        ("folds", c.c_int64),
        ("watch", c.c_void_p),
    ]


class erg_ask_frontier(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("profile", c.c_char_p),
        ("plan", c.c_char_p),
        ("microbatches", c.c_int64),
        ("virtual_stages", c.c_int64),
        ("interleaved", c.c_int32),
        ("points", c.c_int64),
        ("blocking_power_w", c.c_void_p),
        ("p2p_latency_s", c.c_double),
        ("unit_s", c.c_double),
        ("deadline_s", c.c_double),
        ("energy_j", c.c_double),
        ("seed", c.c_uint64),
        ("watch", c.c_void_p),
    ]


class erg_ask_jobs(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("live", c.c_char_p),
        ("all", c.c_int32),
        ("watch", c.c_void_p),
    ]


class erg_ask_layouts(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("job", c.c_char_p),
        ("options", c.c_void_p),
        ("cluster", c.c_char_p),
        ("engine", c.c_char_p),
        ("sequence", c.c_int64),
        ("why", c.c_char_p),
        ("export_as", c.c_char_p),
        ("planner", c.c_char_p),
        ("slots", c.c_int32),
        ("folder", c.c_char_p),
        ("watch", c.c_void_p),
    ]


class erg_ask_measure(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("command", c.c_void_p),
        ("gpus", c.c_char_p),
        ("repeats", c.c_int64),
        ("warmups", c.c_int64),
        ("carbon", c.c_char_p),
        ("price", c.c_char_p),
    ]


class erg_ask_memory(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("job", c.c_char_p),
        ("options", c.c_void_p),
        ("engine", c.c_char_p),
        ("sequence", c.c_int64),
        ("recompute", c.c_char_p),
        ("offload", c.c_void_p),
        ("page", c.c_char_p),
        ("watch", c.c_void_p),
    ]


class erg_ask_monitor(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("gpus", c.c_char_p),
        ("interval_ms", c.c_int64),
        ("watch", c.c_void_p),
    ]


class erg_ask_optimize(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("job", c.c_char_p),
        ("options", c.c_void_p),
        ("microbatches", c.c_int64),
        ("microbatch_size", c.c_int64),
        ("sequence", c.c_int64),
        ("search", c.c_char_p),
        ("seed", c.c_void_p),
        ("watch", c.c_void_p),
    ]


class erg_ask_probe(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("device", c.c_char_p),
        ("calibrate", c.c_char_p),
        ("rows", c.c_char_p),
        ("from", c.c_char_p),
        ("base", c.c_char_p),
        ("gpus", c.c_int64),
        ("seed", c.c_void_p),
        ("thermal", c.c_int32),
        ("turn_s", c.c_double),
        ("until_s", c.c_double),
        ("command", c.c_void_p),
        ("program", c.c_char_p),
        ("watch", c.c_void_p),
    ]


class erg_ask_programme(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("plan", c.c_char_p),
        ("method", c.c_char_p),
        ("point", c.c_int64),
        ("stage", c.c_int64),
        ("dwell_s", c.c_double),
        ("least_change_mhz", c.c_double),
        ("clocks_only", c.c_int32),
        ("watch", c.c_void_p),
    ]


class erg_ask_simulate(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("options", c.c_void_p),
        ("watch", c.c_void_p),
    ]


class erg_ask_submit(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("live", c.c_char_p),
        ("job", c.c_char_p),
        ("like", c.c_char_p),
        ("resume", c.c_char_p),
        ("arguments", c.c_void_p),
        ("argument_count", c.c_size_t),
        ("gpus", c.c_int64),
        ("gpus_most", c.c_int64),
        ("type", c.c_char_p),
        ("deadline", c.c_char_p),
        ("weight", c.c_double),
        ("per_node", c.c_int32),
        ("program", c.c_char_p),
        ("watch", c.c_void_p),
        ("measure_s", c.c_double),
    ]


class erg_ask_sweep(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("file", c.c_char_p),
        ("folder", c.c_char_p),
        ("part", c.c_char_p),
        ("slurm_tasks", c.c_int64),
        ("program", c.c_char_p),
        ("watch", c.c_void_p),
    ]


class erg_ask_tokenize(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("model", c.c_char_p),
        ("files", c.c_void_p),
        ("file_count", c.c_size_t),
        ("output", c.c_char_p),
        ("key", c.c_char_p),
        ("end", c.c_char_p),
        ("watch", c.c_void_p),
    ]


class erg_ask_trace(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("cluster", c.c_char_p),
        ("profiles", c.c_char_p),
        ("recipe", c.c_char_p),
        ("log", c.c_char_p),
        ("seed", c.c_uint64),
        ("watch", c.c_void_p),
    ]


class erg_ask_train(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("job", c.c_char_p),
        ("options", c.c_void_p),
        ("best", c.c_int32),
        ("watch", c.c_void_p),
    ]


class erg_ask_verify(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("job", c.c_char_p),
        ("plan", c.c_char_p),
        ("device", c.c_char_p),
        ("layers", c.c_int64),
        ("repeatable", c.c_int32),
        ("watch", c.c_void_p),
    ]


class erg_characterization_counts(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("ran", c.c_int64),
        ("ok", c.c_int64),
        ("memory", c.c_int64),
        ("impossible", c.c_int64),
        ("failed", c.c_int64),
        ("skipped", c.c_int64),
        ("failed_findings", c.c_int64),
    ]


class erg_characterization_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("file", c.c_char_p),
        ("folder", c.c_char_p),
        ("only", c.c_char_p),
        ("figures", c.c_char_p),
        ("right", c.c_char_p),
        ("sensor", c.c_char_p),
        ("transient_s", c.c_double),
        ("jobs", c.c_int64),
        ("retry", c.c_int32),
        ("seeded", c.c_int32),
        ("seed", c.c_uint64),
        ("watch", c.c_void_p),
        ("list", c.c_int32),
        ("device", c.c_char_p),
        ("program", c.c_char_p),
        ("others", c.c_void_p),
        ("other_count", c.c_size_t),
        ("lock_clocks", c.c_int32),
    ]


class erg_error(c.Structure):
    _fields_ = [
        ("status", c.c_int),
        ("message", c.c_char * 1024),
    ]


class erg_frontier(c.Structure):
    _fields_ = [
        ("points", c.c_void_p),
        ("count", c.c_size_t),
        ("capacity", c.c_size_t),
    ]


class erg_grant(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("socket", c.c_char_p),
        ("job", c.c_int64),
        ("uid", c.c_int64),
        ("gpus", c.c_char_p),
    ]


class erg_hook_below(c.Structure):
    _fields_ = [
        ("power_cap_s", c.c_double),
        ("thermal_s", c.c_double),
        ("power_brake_s", c.c_double),
        ("other_s", c.c_double),
    ]


class erg_hook_choice(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("point", c.c_int32),
        ("method", c.c_char_p),
        ("time_s", c.c_double),
        ("energy_j", c.c_double),
        ("held_energy_j", c.c_double),
        ("from_step", c.c_int64),
        ("late_replica", c.c_int32),
        ("cause", c.c_int32),
    ]


class erg_hook_class(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("kind", c.c_int32),
        ("chunk", c.c_int32),
        ("clock_mhz", c.c_int32),
        ("count", c.c_int64),
        ("mean_s", c.c_double),
        ("planned_s", c.c_double),
        ("power_w", c.c_double),
        ("energy_j", c.c_double),
        ("uncertainty_j", c.c_double),
        ("quality", c.c_int32),
    ]


class erg_hook_options(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("plan", c.c_char_p),
        ("plan_text", c.c_char_p),
        ("method", c.c_char_p),
        ("point", c.c_int32),
        ("stage", c.c_int32),
        ("replica", c.c_int32),
        ("mode", c.c_int32),
        ("gpu", c.c_char_p),
        ("daemon", c.c_char_p),
        ("dwell_s", c.c_double),
        ("least_change_mhz", c.c_double),
        ("markers", c.c_int32),
        ("energy", c.c_int32),
        ("strict", c.c_int32),
        ("clocks_only", c.c_int32),
    ]


class erg_hook_stats(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("lease", c.c_int32),
        ("steps", c.c_int64),
        ("step_last_s", c.c_double),
        ("step_median_s", c.c_double),
        ("step_planned_s", c.c_double),
        ("busy_s", c.c_double),
        ("passes", c.c_int64),
        ("clock_requests", c.c_int64),
        ("clock_changes", c.c_int64),
        ("clock_superseded", c.c_int64),
        ("clock_refused", c.c_int64),
        ("clock_late", c.c_int64),
        ("clock_call_mean_s", c.c_double),
        ("clock_call_worst_s", c.c_double),
        ("below_s", c.c_double),
        ("below", erg_hook_below),
        ("classes", c.c_int32),
        ("order_errors", c.c_int32),
        ("programme_changes", c.c_int32),
        ("planned_changes", c.c_int32),
        ("programme_energy_j", c.c_double),
        ("planned_energy_j", c.c_double),
        ("planned_times_hold", c.c_int32),
        ("waiting_w", c.c_double),
        ("point", c.c_int32),
        ("trouble", c.c_char * 256),
        ("profile_clocks", c.c_int32),
        ("profile_over", c.c_int32),
        ("profile", c.c_char * 512),
    ]


class erg_job_info(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char_p),
        ("model", c.c_char_p),
        ("gpu", c.c_char_p),
        ("stack", c.c_char_p),
        ("engine", c.c_char_p),
        ("recompute", c.c_char_p),
        ("gpus", c.c_int64),
        ("kinds", c.c_int64),
        ("tensor", c.c_int64),
        ("context", c.c_int64),
        ("pipeline", c.c_int64),
        ("data", c.c_int64),
        ("virtual_stages", c.c_int64),
        ("microbatch_size", c.c_int64),
        ("microbatches", c.c_int64),
        ("sequence", c.c_int64),
        ("batch", c.c_int64),
        ("offload", c.c_double),
        ("expert", c.c_int64),
    ]


class erg_kernels_category(c.Structure):
    _fields_ = [
        ("count", c.c_int64),
        ("summed_s", c.c_double),
        ("exposed_s", c.c_double),
        ("wait_s", c.c_double),
        ("energy_j", c.c_double),
    ]


class erg_kernels_gpu(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("file", c.c_char_p),
        ("rank", c.c_int32),
        ("device", c.c_int32),
        ("window_s", c.c_double),
        ("compute_s", c.c_double),
        ("exposed_s", c.c_double),
        ("idle_s", c.c_double),
        ("energy_j", c.c_double),
        ("idle_energy_j", c.c_double),
        ("category", erg_kernels_category * 8),
    ]


class erg_kernels_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("files", c.c_void_p),
        ("file_count", c.c_size_t),
        ("recording", c.c_char_p),
        ("categories", c.c_char_p),
        ("watch", c.c_void_p),
    ]


class erg_launch_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("ranks", c.c_int64),
        ("command", c.c_void_p),
        ("timeout_s", c.c_double),
        ("line", c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_int, c.c_char_p, c.c_size_t)),
        ("context", c.c_void_p),
    ]


class erg_layouts_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("gpus", c.c_char_p),
        ("batch", c.c_int64),
        ("batch_slack", c.c_double),
        ("layout", c.c_char_p),
        ("recompute", c.c_char_p),
        ("per_stage", c.c_int32),
        ("objective", c.c_char_p),
        ("deadline_s", c.c_double),
        ("energy_j", c.c_double),
        ("power_w", c.c_double),
        ("memory_bytes", c.c_double),
        ("host_bytes", c.c_double),
        ("top", c.c_int64),
        ("page", c.c_int32),
        ("watch", c.c_void_p),
        ("fsdp", c.c_int32),
    ]


class erg_layouts_row(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char_p),
        ("gpus", c.c_int64),
        ("tensor", c.c_int64),
        ("context", c.c_int64),
        ("pipeline", c.c_int64),
        ("data", c.c_int64),
        ("virtual_stages", c.c_int64),
        ("microbatch_size", c.c_int64),
        ("microbatches", c.c_int64),
        ("batch", c.c_int64),
        ("recompute", c.c_char_p),
        ("offload", c.c_double),
        ("time_s", c.c_double),
        ("energy_j", c.c_double),
        ("power_w", c.c_double),
        ("tokens_per_s", c.c_double),
        ("mfu", c.c_double),
        ("peak_bytes", c.c_double),
        ("expert", c.c_int64),
        ("fsdp", c.c_int64),
    ]


class erg_memory_info(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("fits", c.c_int32),
        ("host_fits", c.c_int32),
        ("stages", c.c_int64),
        ("binding_stage", c.c_int64),
        ("tensor", c.c_int64),
        ("context", c.c_int64),
        ("pipeline", c.c_int64),
        ("data", c.c_int64),
        ("virtual_stages", c.c_int64),
        ("microbatch_size", c.c_int64),
        ("microbatches", c.c_int64),
        ("sequence", c.c_int64),
        ("recompute", c.c_char_p),
        ("offload", c.c_double),
        ("change", c.c_char_p),
        ("expert", c.c_int64),
        ("fsdp", c.c_int64),
    ]


class erg_memory_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("layout", c.c_char_p),
        ("gpus", c.c_int64),
        ("batch", c.c_int64),
        ("solve_offload", c.c_char_p),
        ("per_stage", c.c_int32),
        ("accounting", c.c_char_p),
        ("layer_copies", c.c_int32),
        ("watch", c.c_void_p),
    ]


class erg_memory_stage_info(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("gpu", c.c_char_p),
        ("peak_bytes", c.c_double),
        ("gpu_bytes", c.c_double),
        ("weights_bytes", c.c_double),
        ("gradients_bytes", c.c_double),
        ("optimizer_bytes", c.c_double),
        ("activations_bytes", c.c_double),
        ("other_bytes", c.c_double),
        ("host_bytes", c.c_double),
        ("offload", c.c_double),
        ("layers", c.c_int64),
    ]


class erg_meter_gpu(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char * 96),
        ("uuid", c.c_char * 96),
        ("trouble", c.c_char * 96),
        ("index", c.c_int),
        ("counter_period_s", c.c_double),
        ("power_period_s", c.c_double),
        ("read_latency_s", c.c_double),
    ]


class erg_model_info(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char_p),
        ("architecture", c.c_char_p),
        ("layers", c.c_int64),
        ("hidden", c.c_int64),
        ("heads", c.c_int64),
        ("kv_heads", c.c_int64),
        ("head_dim", c.c_int64),
        ("ffn", c.c_int64),
        ("vocabulary", c.c_int64),
        ("most_positions", c.c_int64),
        ("window", c.c_int64),
        ("parameters", c.c_double),
        ("trained_parameters", c.c_double),
        ("tied", c.c_int32),
        ("gated", c.c_int32),
        ("chosen_experts", c.c_int32),
        ("experts", c.c_int64),
        ("expert_ffn", c.c_int64),
        ("shared_ffn", c.c_int64),
        ("dense_layers", c.c_int64),
        ("active_parameters", c.c_double),
    ]


class erg_model_work(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("linear_flops", c.c_double),
        ("head_flops", c.c_double),
        ("attention_flops", c.c_double),
        ("training_flops", c.c_double),
        ("recomputing_flops", c.c_double),
    ]


class erg_monitor_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("gpus", c.c_char_p),
        ("interval_ms", c.c_int64),
    ]


class erg_monitor_picture(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("rows", c.c_int32),
        ("columns", c.c_int32),
        ("ascii", c.c_int32),
        ("first", c.c_size_t),
    ]


class erg_monitor_run(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("row", c.c_int32),
        ("column", c.c_int32),
        ("style", c.c_int32),
        ("text", c.c_char_p),
    ]


class erg_optimize_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("folder", c.c_char_p),
        ("device", c.c_char_p),
        ("methods", c.c_char_p),
        ("deadline_s", c.c_double),
        ("energy_j", c.c_double),
        ("watch", c.c_void_p),
        ("lock_clocks", c.c_int32),
    ]


class erg_plan_goal(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("method", c.c_char_p),
        ("point", c.c_int64),
        ("pick", c.c_char_p),
        ("deadline_s", c.c_double),
        ("energy_j", c.c_double),
        ("power_w", c.c_double),
        ("straggler_s", c.c_double),
    ]


class erg_plan_info(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char_p),
        ("model", c.c_char_p),
        ("gpu", c.c_char_p),
        ("kinds", c.c_int64),
        ("tensor", c.c_int64),
        ("context", c.c_int64),
        ("pipeline", c.c_int64),
        ("data", c.c_int64),
        ("virtual_stages", c.c_int64),
        ("microbatch_size", c.c_int64),
        ("microbatches", c.c_int64),
        ("sequence", c.c_int64),
        ("passes", c.c_int64),
        ("method", c.c_char_p),
        ("rule", c.c_char_p),
        ("point", c.c_int64),
        ("time_s", c.c_double),
        ("energy_j", c.c_double),
        ("static_energy_j", c.c_double),
        ("step_time_s", c.c_double),
        ("step_energy_j", c.c_double),
        ("points", c.c_int64),
    ]


class erg_plan_method_info(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char_p),
        ("label", c.c_char_p),
        ("points", c.c_int64),
        ("slower", c.c_int64),
    ]


class erg_plan_pass(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("microbatch", c.c_int64),
        ("chunk", c.c_int64),
        ("direction", c.c_int32),
        ("clock_mhz", c.c_int32),
        ("start_s", c.c_double),
        ("time_s", c.c_double),
        ("energy_j", c.c_double),
        ("mode", c.c_char_p),
    ]


class erg_plan_point_info(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("time_s", c.c_double),
        ("energy_j", c.c_double),
        ("power_w", c.c_double),
        ("static_energy_j", c.c_double),
    ]


class erg_point(c.Structure):
    _fields_ = [
        ("time_s", c.c_double),
        ("energy_j", c.c_double),
        ("recipe", c.c_int64),
    ]


class erg_record_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("output", c.c_char_p),
        ("gpus", c.c_char_p),
        ("interval_ms", c.c_int64),
        ("duration_s", c.c_double),
        ("command", c.c_void_p),
    ]


class erg_simulations_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("cluster", c.c_char_p),
        ("trace", c.c_char_p),
        ("profiles", c.c_char_p),
        ("policies", c.c_char_p),
        ("until_s", c.c_double),
        ("work", c.c_double),
        ("power_cap_w", c.c_double),
        ("tariff", c.c_char_p),
        ("outages", c.c_char_p),
        ("failure_s", c.c_double),
        ("repair_s", c.c_double),
        ("seed", c.c_uint64),
        ("folder", c.c_char_p),
        ("page", c.c_int32),
        ("watch", c.c_void_p),
    ]


class erg_simulations_result(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("policy", c.c_char_p),
        ("submitted_jobs", c.c_int64),
        ("finished_jobs", c.c_int64),
        ("rejected_jobs", c.c_int64),
        ("reconfigurations", c.c_int64),
        ("mean_completion_s", c.c_double),
        ("median_completion_s", c.c_double),
        ("p99_completion_s", c.c_double),
        ("mean_waiting_s", c.c_double),
        ("utilization", c.c_double),
        ("goodput", c.c_double),
        ("deadlines_met", c.c_double),
        ("energy_j", c.c_double),
        ("peak_power_w", c.c_double),
        ("cost_usd", c.c_double),
        ("co2_kg", c.c_double),
        ("simulated_s", c.c_double),
    ]


class erg_train_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("folder", c.c_char_p),
        ("init", c.c_char_p),
        ("device", c.c_int),
        ("type", c.c_int),
        ("fresh", c.c_int),
        ("plan", c.c_char_p),
        ("method", c.c_char_p),
        ("point", c.c_size_t),
        ("deadline_s", c.c_double),
        ("energy_budget_j", c.c_double),
        ("force_plan", c.c_int),
        ("lock_clocks", c.c_int),
        ("require_clocks", c.c_int),
        ("steps", c.c_uint64),
        ("time_s", c.c_double),
        ("line", c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)),
        ("context", c.c_void_p),
        ("stuck", c.CFUNCTYPE(None, c.c_char_p)),
        ("allow_change", c.c_int),
    ]


class erg_train_stats(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("step", c.c_uint64),
        ("steps", c.c_uint64),
        ("updates", c.c_uint64),
        ("tokens", c.c_uint64),
        ("loss", c.c_double),
        ("validation_loss", c.c_double),
        ("gradient_norm", c.c_double),
        ("learning_rate", c.c_double),
        ("step_s", c.c_double),
        ("j_per_token", c.c_double),
        ("j_per_token_uncertainty", c.c_double),
        ("memory_bytes", c.c_uint64),
        ("clipped", c.c_int),
        ("skipped", c.c_int),
        ("saved", c.c_int),
        ("rank", c.c_int),
        ("ranks", c.c_int),
        ("end", c.c_int),
        ("signal", c.c_int),
        ("resumed", c.c_char_p),
    ]


class erg_tune_options(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("knob", c.c_int32),
        ("selector", c.c_int32),
        ("weight", c.c_double),
        ("slowdown", c.c_double),
        ("budget_j", c.c_double),
        ("gpus", c.c_char_p),
        ("profile", c.c_char_p),
        ("least", c.c_int32),
        ("most", c.c_int32),
        ("step", c.c_int32),
        ("settle_steps", c.c_int32),
        ("measure_steps", c.c_int32),
        ("measure_s", c.c_double),
    ]


class erg_tune_point(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("value", c.c_int32),
        ("blocks", c.c_int32),
        ("time_s", c.c_double),
        ("energy_j", c.c_double),
        ("time_uncertainty_s", c.c_double),
        ("energy_uncertainty_j", c.c_double),
    ]


class erg_tune_stats(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("state", c.c_int32),
        ("value", c.c_int32),
        ("meets", c.c_int32),
        ("points", c.c_int32),
        ("searches", c.c_int32),
        ("blocks", c.c_int64),
        ("steps", c.c_int64),
    ]


class erg_watch(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("context", c.c_void_p),
        ("log", c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)),
        ("progress", c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_size_t, c.c_size_t)),
        ("cancel", c.CFUNCTYPE(c.c_int, c.c_void_p)),
    ]


class erg_window_gpu(c.Structure):
    _fields_ = [
        ("energy_j", c.c_double),
        ("uncertainty_j", c.c_double),
        ("power_energy_j", c.c_double),
        ("ratio", c.c_double),
        ("power_mean_w", c.c_double),
        ("power_peak_w", c.c_double),
        ("temperature_begin_c", c.c_double),
        ("temperature_end_c", c.c_double),
        ("temperature_max_c", c.c_double),
        ("memory_temperature_max_c", c.c_double),
        ("throttled_power_s", c.c_double),
        ("throttled_thermal_s", c.c_double),
        ("sm_clock_mean_mhz", c.c_double),
        ("quality", c.c_int),
        ("counter", c.c_int),
        ("lost", c.c_int),
        ("reserved", c.c_double * 8),
    ]


class erg_window_result(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("begin_ns", c.c_int64),
        ("end_ns", c.c_int64),
        ("time_s", c.c_double),
        ("energy_j", c.c_double),
        ("energy_gpus", c.c_size_t),
        ("uncertainty_j", c.c_double),
        ("cpu_j", c.c_double),
        ("cpu_uncertainty_j", c.c_double),
        ("dram_j", c.c_double),
        ("dram_uncertainty_j", c.c_double),
        ("gpus", c.c_size_t),
        ("gpu", erg_window_gpu * 32),
    ]


SIZES = {
    erg_ask_calculon: 56,
    erg_ask_daemon: 16,
    erg_ask_doctor: 24,
    erg_ask_fit: 88,
    erg_ask_frontier: 112,
    erg_ask_jobs: 32,
    erg_ask_layouts: 96,
    erg_ask_measure: 56,
    erg_ask_memory: 72,
    erg_ask_monitor: 32,
    erg_ask_optimize: 72,
    erg_ask_probe: 112,
    erg_ask_programme: 72,
    erg_ask_simulate: 24,
    erg_ask_submit: 128,
    erg_ask_sweep: 56,
    erg_ask_tokenize: 64,
    erg_ask_trace: 56,
    erg_ask_train: 40,
    erg_ask_verify: 56,
    erg_characterization_counts: 64,
    erg_characterization_options: 144,
    erg_error: 1028,
    erg_frontier: 24,
    erg_grant: 40,
    erg_hook_below: 32,
    erg_hook_choice: 56,
    erg_hook_class: 72,
    erg_hook_options: 96,
    erg_hook_stats: 984,
    erg_job_info: 160,
    erg_kernels_category: 40,
    erg_kernels_gpu: 392,
    erg_kernels_options: 48,
    erg_launch_options: 48,
    erg_layouts_options: 136,
    erg_layouts_row: 168,
    erg_memory_info: 136,
    erg_memory_options: 72,
    erg_memory_stage_info: 96,
    erg_meter_gpu: 328,
    erg_model_info: 168,
    erg_model_work: 48,
    erg_monitor_options: 24,
    erg_monitor_picture: 32,
    erg_monitor_run: 32,
    erg_optimize_options: 64,
    erg_plan_goal: 64,
    erg_plan_info: 184,
    erg_plan_method_info: 40,
    erg_plan_pass: 64,
    erg_plan_point_info: 40,
    erg_point: 24,
    erg_record_options: 48,
    erg_simulations_options: 128,
    erg_simulations_result: 144,
    erg_train_options: 144,
    erg_train_stats: 144,
    erg_tune_options: 88,
    erg_tune_point: 48,
    erg_tune_stats: 40,
    erg_watch: 40,
    erg_window_gpu: 184,
    erg_window_result: 5984,
}

OFFSETS = {
    erg_ask_calculon: {"size": 0, "model": 8, "system": 16, "folder": 24, "gpus": 32, "batch": 40, "watch": 48},
    erg_ask_daemon: {"size": 0, "socket": 8},
    erg_ask_doctor: {"size": 0, "gpus": 8, "watch": 16},
    erg_ask_fit: {"size": 0, "rows": 8, "runs": 16, "run_count": 24, "engine": 32, "job": 40, "cluster": 48, "keys": 56, "output": 64, "folds": 72, "watch": 80},
    erg_ask_frontier: {"size": 0, "profile": 8, "plan": 16, "microbatches": 24, "virtual_stages": 32, "interleaved": 40, "points": 48, "blocking_power_w": 56, "p2p_latency_s": 64, "unit_s": 72, "deadline_s": 80, "energy_j": 88, "seed": 96, "watch": 104},
    erg_ask_jobs: {"size": 0, "live": 8, "all": 16, "watch": 24},
    erg_ask_layouts: {"size": 0, "job": 8, "options": 16, "cluster": 24, "engine": 32, "sequence": 40, "why": 48, "export_as": 56, "planner": 64, "slots": 72, "folder": 80, "watch": 88},
    erg_ask_measure: {"size": 0, "command": 8, "gpus": 16, "repeats": 24, "warmups": 32, "carbon": 40, "price": 48},
    erg_ask_memory: {"size": 0, "job": 8, "options": 16, "engine": 24, "sequence": 32, "recompute": 40, "offload": 48, "page": 56, "watch": 64},
    erg_ask_monitor: {"size": 0, "gpus": 8, "interval_ms": 16, "watch": 24},
    erg_ask_optimize: {"size": 0, "job": 8, "options": 16, "microbatches": 24, "microbatch_size": 32, "sequence": 40, "search": 48, "seed": 56, "watch": 64},
    erg_ask_probe: {"size": 0, "device": 8, "calibrate": 16, "rows": 24, "from": 32, "base": 40, "gpus": 48, "seed": 56, "thermal": 64, "turn_s": 72, "until_s": 80, "command": 88, "program": 96, "watch": 104},
    erg_ask_programme: {"size": 0, "plan": 8, "method": 16, "point": 24, "stage": 32, "dwell_s": 40, "least_change_mhz": 48, "clocks_only": 56, "watch": 64},
    erg_ask_simulate: {"size": 0, "options": 8, "watch": 16},
    erg_ask_submit: {"size": 0, "live": 8, "job": 16, "like": 24, "resume": 32, "arguments": 40, "argument_count": 48, "gpus": 56, "gpus_most": 64, "type": 72, "deadline": 80, "weight": 88, "per_node": 96, "program": 104, "watch": 112, "measure_s": 120},
    erg_ask_sweep: {"size": 0, "file": 8, "folder": 16, "part": 24, "slurm_tasks": 32, "program": 40, "watch": 48},
    erg_ask_tokenize: {"size": 0, "model": 8, "files": 16, "file_count": 24, "output": 32, "key": 40, "end": 48, "watch": 56},
    erg_ask_trace: {"size": 0, "cluster": 8, "profiles": 16, "recipe": 24, "log": 32, "seed": 40, "watch": 48},
    erg_ask_train: {"size": 0, "job": 8, "options": 16, "best": 24, "watch": 32},
    erg_ask_verify: {"size": 0, "job": 8, "plan": 16, "device": 24, "layers": 32, "repeatable": 40, "watch": 48},
    erg_characterization_counts: {"size": 0, "ran": 8, "ok": 16, "memory": 24, "impossible": 32, "failed": 40, "skipped": 48, "failed_findings": 56},
    erg_characterization_options: {"size": 0, "file": 8, "folder": 16, "only": 24, "figures": 32, "right": 40, "sensor": 48, "transient_s": 56, "jobs": 64, "retry": 72, "seeded": 76, "seed": 80, "watch": 88, "list": 96, "device": 104, "program": 112, "others": 120, "other_count": 128, "lock_clocks": 136},
    erg_error: {"status": 0, "message": 4},
    erg_frontier: {"points": 0, "count": 8, "capacity": 16},
    erg_grant: {"size": 0, "socket": 8, "job": 16, "uid": 24, "gpus": 32},
    erg_hook_below: {"power_cap_s": 0, "thermal_s": 8, "power_brake_s": 16, "other_s": 24},
    erg_hook_choice: {"size": 0, "point": 4, "method": 8, "time_s": 16, "energy_j": 24, "held_energy_j": 32, "from_step": 40, "late_replica": 48, "cause": 52},
    erg_hook_class: {"size": 0, "kind": 4, "chunk": 8, "clock_mhz": 12, "count": 16, "mean_s": 24, "planned_s": 32, "power_w": 40, "energy_j": 48, "uncertainty_j": 56, "quality": 64},
    erg_hook_options: {"size": 0, "plan": 8, "plan_text": 16, "method": 24, "point": 32, "stage": 36, "replica": 40, "mode": 44, "gpu": 48, "daemon": 56, "dwell_s": 64, "least_change_mhz": 72, "markers": 80, "energy": 84, "strict": 88, "clocks_only": 92},
    erg_hook_stats: {"size": 0, "lease": 4, "steps": 8, "step_last_s": 16, "step_median_s": 24, "step_planned_s": 32, "busy_s": 40, "passes": 48, "clock_requests": 56, "clock_changes": 64, "clock_superseded": 72, "clock_refused": 80, "clock_late": 88, "clock_call_mean_s": 96, "clock_call_worst_s": 104, "below_s": 112, "below": 120, "classes": 152, "order_errors": 156, "programme_changes": 160, "planned_changes": 164, "programme_energy_j": 168, "planned_energy_j": 176, "planned_times_hold": 184, "waiting_w": 192, "point": 200, "trouble": 204, "profile_clocks": 460, "profile_over": 464, "profile": 468},
    erg_job_info: {"size": 0, "name": 8, "model": 16, "gpu": 24, "stack": 32, "engine": 40, "recompute": 48, "gpus": 56, "kinds": 64, "tensor": 72, "context": 80, "pipeline": 88, "data": 96, "virtual_stages": 104, "microbatch_size": 112, "microbatches": 120, "sequence": 128, "batch": 136, "offload": 144, "expert": 152},
    erg_kernels_category: {"count": 0, "summed_s": 8, "exposed_s": 16, "wait_s": 24, "energy_j": 32},
    erg_kernels_gpu: {"size": 0, "file": 8, "rank": 16, "device": 20, "window_s": 24, "compute_s": 32, "exposed_s": 40, "idle_s": 48, "energy_j": 56, "idle_energy_j": 64, "category": 72},
    erg_kernels_options: {"size": 0, "files": 8, "file_count": 16, "recording": 24, "categories": 32, "watch": 40},
    erg_launch_options: {"size": 0, "ranks": 8, "command": 16, "timeout_s": 24, "line": 32, "context": 40},
    erg_layouts_options: {"size": 0, "gpus": 8, "batch": 16, "batch_slack": 24, "layout": 32, "recompute": 40, "per_stage": 48, "objective": 56, "deadline_s": 64, "energy_j": 72, "power_w": 80, "memory_bytes": 88, "host_bytes": 96, "top": 104, "page": 112, "watch": 120, "fsdp": 128},
    erg_layouts_row: {"size": 0, "name": 8, "gpus": 16, "tensor": 24, "context": 32, "pipeline": 40, "data": 48, "virtual_stages": 56, "microbatch_size": 64, "microbatches": 72, "batch": 80, "recompute": 88, "offload": 96, "time_s": 104, "energy_j": 112, "power_w": 120, "tokens_per_s": 128, "mfu": 136, "peak_bytes": 144, "expert": 152, "fsdp": 160},
    erg_memory_info: {"size": 0, "fits": 8, "host_fits": 12, "stages": 16, "binding_stage": 24, "tensor": 32, "context": 40, "pipeline": 48, "data": 56, "virtual_stages": 64, "microbatch_size": 72, "microbatches": 80, "sequence": 88, "recompute": 96, "offload": 104, "change": 112, "expert": 120, "fsdp": 128},
    erg_memory_options: {"size": 0, "layout": 8, "gpus": 16, "batch": 24, "solve_offload": 32, "per_stage": 40, "accounting": 48, "layer_copies": 56, "watch": 64},
    erg_memory_stage_info: {"size": 0, "gpu": 8, "peak_bytes": 16, "gpu_bytes": 24, "weights_bytes": 32, "gradients_bytes": 40, "optimizer_bytes": 48, "activations_bytes": 56, "other_bytes": 64, "host_bytes": 72, "offload": 80, "layers": 88},
    erg_meter_gpu: {"size": 0, "name": 8, "uuid": 104, "trouble": 200, "index": 296, "counter_period_s": 304, "power_period_s": 312, "read_latency_s": 320},
    erg_model_info: {"size": 0, "name": 8, "architecture": 16, "layers": 24, "hidden": 32, "heads": 40, "kv_heads": 48, "head_dim": 56, "ffn": 64, "vocabulary": 72, "most_positions": 80, "window": 88, "parameters": 96, "trained_parameters": 104, "tied": 112, "gated": 116, "chosen_experts": 120, "experts": 128, "expert_ffn": 136, "shared_ffn": 144, "dense_layers": 152, "active_parameters": 160},
    erg_model_work: {"size": 0, "linear_flops": 8, "head_flops": 16, "attention_flops": 24, "training_flops": 32, "recomputing_flops": 40},
    erg_monitor_options: {"size": 0, "gpus": 8, "interval_ms": 16},
    erg_monitor_picture: {"size": 0, "rows": 8, "columns": 12, "ascii": 16, "first": 24},
    erg_monitor_run: {"size": 0, "row": 8, "column": 12, "style": 16, "text": 24},
    erg_optimize_options: {"size": 0, "folder": 8, "device": 16, "methods": 24, "deadline_s": 32, "energy_j": 40, "watch": 48, "lock_clocks": 56},
    erg_plan_goal: {"size": 0, "method": 8, "point": 16, "pick": 24, "deadline_s": 32, "energy_j": 40, "power_w": 48, "straggler_s": 56},
    erg_plan_info: {"size": 0, "name": 8, "model": 16, "gpu": 24, "kinds": 32, "tensor": 40, "context": 48, "pipeline": 56, "data": 64, "virtual_stages": 72, "microbatch_size": 80, "microbatches": 88, "sequence": 96, "passes": 104, "method": 112, "rule": 120, "point": 128, "time_s": 136, "energy_j": 144, "static_energy_j": 152, "step_time_s": 160, "step_energy_j": 168, "points": 176},
    erg_plan_method_info: {"size": 0, "name": 8, "label": 16, "points": 24, "slower": 32},
    erg_plan_pass: {"size": 0, "microbatch": 8, "chunk": 16, "direction": 24, "clock_mhz": 28, "start_s": 32, "time_s": 40, "energy_j": 48, "mode": 56},
    erg_plan_point_info: {"size": 0, "time_s": 8, "energy_j": 16, "power_w": 24, "static_energy_j": 32},
    erg_point: {"time_s": 0, "energy_j": 8, "recipe": 16},
    erg_record_options: {"size": 0, "output": 8, "gpus": 16, "interval_ms": 24, "duration_s": 32, "command": 40},
    erg_simulations_options: {"size": 0, "cluster": 8, "trace": 16, "profiles": 24, "policies": 32, "until_s": 40, "work": 48, "power_cap_w": 56, "tariff": 64, "outages": 72, "failure_s": 80, "repair_s": 88, "seed": 96, "folder": 104, "page": 112, "watch": 120},
    erg_simulations_result: {"size": 0, "policy": 8, "submitted_jobs": 16, "finished_jobs": 24, "rejected_jobs": 32, "reconfigurations": 40, "mean_completion_s": 48, "median_completion_s": 56, "p99_completion_s": 64, "mean_waiting_s": 72, "utilization": 80, "goodput": 88, "deadlines_met": 96, "energy_j": 104, "peak_power_w": 112, "cost_usd": 120, "co2_kg": 128, "simulated_s": 136},
    erg_train_options: {"size": 0, "folder": 8, "init": 16, "device": 24, "type": 28, "fresh": 32, "plan": 40, "method": 48, "point": 56, "deadline_s": 64, "energy_budget_j": 72, "force_plan": 80, "lock_clocks": 84, "require_clocks": 88, "steps": 96, "time_s": 104, "line": 112, "context": 120, "stuck": 128, "allow_change": 136},
    erg_train_stats: {"size": 0, "step": 8, "steps": 16, "updates": 24, "tokens": 32, "loss": 40, "validation_loss": 48, "gradient_norm": 56, "learning_rate": 64, "step_s": 72, "j_per_token": 80, "j_per_token_uncertainty": 88, "memory_bytes": 96, "clipped": 104, "skipped": 108, "saved": 112, "rank": 116, "ranks": 120, "end": 124, "signal": 128, "resumed": 136},
    erg_tune_options: {"size": 0, "knob": 4, "selector": 8, "weight": 16, "slowdown": 24, "budget_j": 32, "gpus": 40, "profile": 48, "least": 56, "most": 60, "step": 64, "settle_steps": 68, "measure_steps": 72, "measure_s": 80},
    erg_tune_point: {"size": 0, "value": 4, "blocks": 8, "time_s": 16, "energy_j": 24, "time_uncertainty_s": 32, "energy_uncertainty_j": 40},
    erg_tune_stats: {"size": 0, "state": 4, "value": 8, "meets": 12, "points": 16, "searches": 20, "blocks": 24, "steps": 32},
    erg_watch: {"size": 0, "context": 8, "log": 16, "progress": 24, "cancel": 32},
    erg_window_gpu: {"energy_j": 0, "uncertainty_j": 8, "power_energy_j": 16, "ratio": 24, "power_mean_w": 32, "power_peak_w": 40, "temperature_begin_c": 48, "temperature_end_c": 56, "temperature_max_c": 64, "memory_temperature_max_c": 72, "throttled_power_s": 80, "throttled_thermal_s": 88, "sm_clock_mean_mhz": 96, "quality": 104, "counter": 108, "lost": 112, "reserved": 120},
    erg_window_result: {"size": 0, "begin_ns": 8, "end_ns": 16, "time_s": 24, "energy_j": 32, "energy_gpus": 40, "uncertainty_j": 48, "cpu_j": 56, "cpu_uncertainty_j": 64, "dram_j": 72, "dram_uncertainty_j": 80, "gpus": 88, "gpu": 96},
}

FUNCTIONS = {
    "erg_answer_check": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_answer_csv": (c.c_char_p, [c.c_void_p]),
    "erg_answer_free": (None, [c.c_void_p]),
    "erg_answer_json": (c.c_char_p, [c.c_void_p]),
    "erg_answer_text": (c.c_char_p, [c.c_void_p]),
    "erg_ask_calculon": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_daemon": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_doctor": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_fit": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_frontier": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_jobs": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_layouts": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_measure": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_memory": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_monitor": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_optimize": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_probe": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_programme": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_simulate": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_submit": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_sweep": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_tokenize": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_trace": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_train": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_ask_verify": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_characterization_check": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_characterization_counts": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_characterization_findings": (c.c_char_p, [c.c_void_p]),
    "erg_characterization_free": (None, [c.c_void_p]),
    "erg_characterization_json": (c.c_char_p, [c.c_void_p]),
    "erg_characterization_text": (c.c_char_p, [c.c_void_p]),
    "erg_characterize": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_frontier_add": (None, [c.c_void_p, c.c_double, c.c_double, c.c_int64]),
    "erg_frontier_clear": (None, [c.c_void_p]),
    "erg_frontier_copy": (None, [c.c_void_p, c.c_void_p]),
    "erg_frontier_filter": (None, [c.c_void_p]),
    "erg_frontier_hull": (None, [c.c_void_p]),
    "erg_frontier_hypervolume": (c.c_double, [c.c_void_p, c.c_double, c.c_double]),
    "erg_frontier_init": (None, [c.c_void_p]),
    "erg_frontier_pick_budget": (c.c_ssize_t, [c.c_void_p, c.c_double]),
    "erg_frontier_pick_deadline": (c.c_ssize_t, [c.c_void_p, c.c_double]),
    "erg_frontier_pick_knee": (c.c_ssize_t, [c.c_void_p]),
    "erg_frontier_release": (None, [c.c_void_p]),
    "erg_frontier_sum": (None, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_frontier_union": (None, [c.c_void_p, c.c_void_p, c.c_int64]),
    "erg_grant_gpus": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_hook_agree": (c.c_int, [c.c_void_p, erg_hook_exchange, c.c_void_p, c.c_int32, c.c_void_p]),
    "erg_hook_agreed": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_hook_begin": (c.c_int, [c.c_void_p, c.c_int32, c.c_int32, c.c_int32, c.c_void_p, c.c_void_p]),
    "erg_hook_begin_named": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_void_p]),
    "erg_hook_class": (c.c_int, [c.c_void_p, c.c_int32, c.c_void_p]),
    "erg_hook_close": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_hook_defaults": (None, [c.c_void_p]),
    "erg_hook_end": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_hook_late": (c.c_int, [c.c_void_p, c.c_double, c.c_void_p, c.c_void_p]),
    "erg_hook_open": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_hook_pause": (c.c_int, [c.c_void_p]),
    "erg_hook_profile_to": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_hook_resume": (c.c_int, [c.c_void_p]),
    "erg_hook_stats": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_hook_step_begin": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_hook_step_end": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_job_check": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_job_free": (None, [c.c_void_p]),
    "erg_job_info": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_job_open": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_job_open_text": (c.c_int, [c.c_void_p, c.c_char_p, c.c_char_p, c.c_size_t, c.c_void_p]),
    "erg_job_own_name": (c.c_char_p, [c.c_char_p]),
    "erg_job_set": (c.c_int, [c.c_void_p, c.c_char_p, c.c_char_p, c.c_void_p]),
    "erg_job_text": (c.c_char_p, [c.c_void_p]),
    "erg_kernels_category_name": (c.c_char_p, [c.c_int]),
    "erg_kernels_csv": (c.c_char_p, [c.c_void_p]),
    "erg_kernels_free": (None, [c.c_void_p]),
    "erg_kernels_gpu": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "erg_kernels_gpus": (c.c_size_t, [c.c_void_p]),
    "erg_kernels_import": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_kernels_json": (c.c_char_p, [c.c_void_p]),
    "erg_kernels_text": (c.c_char_p, [c.c_void_p]),
    "erg_launch_managed": (c.c_int, [c.c_char_p, c.c_char_p, c.c_void_p]),
    "erg_launch_ranks": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_layouts_count": (c.c_size_t, [c.c_void_p]),
    "erg_layouts_find": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_layouts_free": (None, [c.c_void_p]),
    "erg_layouts_job": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "erg_layouts_json": (c.c_char_p, [c.c_void_p]),
    "erg_layouts_plan": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_layouts_row": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "erg_layouts_write_page": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_memory_find": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_memory_free": (None, [c.c_void_p]),
    "erg_memory_info": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_memory_json": (c.c_char_p, [c.c_void_p]),
    "erg_memory_stage": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "erg_memory_write_page": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_meter_close": (None, [c.c_void_p]),
    "erg_meter_gpu": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "erg_meter_gpus": (c.c_size_t, [c.c_void_p]),
    "erg_meter_open": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_model_free": (None, [c.c_void_p]),
    "erg_model_info": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_model_open": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_model_open_text": (c.c_int, [c.c_void_p, c.c_char_p, c.c_char_p, c.c_size_t, c.c_void_p]),
    "erg_model_work": (c.c_int, [c.c_void_p, c.c_double, c.c_double, c.c_void_p, c.c_void_p]),
    "erg_monitor_close": (None, [c.c_void_p]),
    "erg_monitor_draw": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_monitor_gpus": (c.c_size_t, [c.c_void_p]),
    "erg_monitor_open": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_monitor_page": (c.c_size_t, [c.c_void_p, c.c_int]),
    "erg_monitor_run": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "erg_monitor_runs": (c.c_size_t, [c.c_void_p]),
    "erg_optimize_job": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_plan_choose": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_plan_chosen_json": (c.c_char_p, [c.c_void_p]),
    "erg_plan_chosen_text": (c.c_char_p, [c.c_void_p]),
    "erg_plan_free": (None, [c.c_void_p]),
    "erg_plan_info": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_plan_method": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "erg_plan_open": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_plan_open_text": (c.c_int, [c.c_void_p, c.c_char_p, c.c_char_p, c.c_size_t, c.c_void_p]),
    "erg_plan_passes": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "erg_plan_point": (c.c_int, [c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "erg_plan_save": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_plan_write_page": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_record_export": (c.c_int, [c.c_char_p, c.c_char_p, c.c_char_p, c.c_void_p]),
    "erg_record_gpus": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_simulations_count": (c.c_size_t, [c.c_void_p]),
    "erg_simulations_free": (None, [c.c_void_p]),
    "erg_simulations_json": (c.c_char_p, [c.c_void_p]),
    "erg_simulations_result": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "erg_simulations_run": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_simulations_write_page": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_train_about": (c.c_char_p, [c.c_void_p]),
    "erg_train_check_export": (c.c_int, [c.c_char_p, c.c_void_p]),
    "erg_train_checkpoint": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_train_close": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_train_export": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_train_open": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_void_p]),
    "erg_train_open_best": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_double, c.c_void_p]),
    "erg_train_result": (c.c_char_p, [c.c_void_p]),
    "erg_train_resume": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "erg_train_save_soon": (None, [c.c_void_p]),
    "erg_train_stats": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_train_step": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_train_stop": (None, [c.c_void_p, c.c_int]),
    "erg_tune_close": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_tune_defaults": (None, [c.c_void_p]),
    "erg_tune_open": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_tune_point": (c.c_int, [c.c_void_p, c.c_int32, c.c_void_p]),
    "erg_tune_stats": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_tune_step_begin": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_tune_step_end": (c.c_int, [c.c_void_p, c.c_void_p]),
    "erg_version": (c.c_char_p, []),
    "erg_window_begin": (c.c_void_p, [c.c_void_p]),
    "erg_window_cancel": (None, [c.c_void_p]),
    "erg_window_end": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_window_look": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "erg_words": (c.c_void_p, [c.c_int]),
}
