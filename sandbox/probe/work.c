/* Modules, launches, streams, events and captures. */
#include "driver.h"

static const char KERNEL[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                             ".visible .entry none()\n{\nret;\n}\n.visible .entry one(.param .u64 n)\n{\nret;\n}\n";

static int launch(void *function, unsigned grid, unsigned block, unsigned shared, void *stream, void **params)
{
    return ASK((void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), 4000,
               "cuLaunchKernel")(function, grid, 1, 1, block, 1, 1, shared, stream, params, NULL);
}

static void *function_of(const char *name)
{
    void *module = NULL, *function = NULL;
    ASK((void **, const void *), 2000, "cuModuleLoadData")(&module, KERNEL);
    ASK((void **, void *, const char *), 2000, "cuModuleGetFunction")(&function, module, name);
    return function;
}

void probe_module(void)
{
    void *module = NULL, *function = NULL;
    size_t offset = 0, size = 0;
    int value = 0;
    need_context();
    say("module.load.garbage", ASK((void **, const void *), 2000, "cuModuleLoadData")(&module, "garbage, and no image at all"));
    say("module.load.ptx_garbage", ASK((void **, const void *), 2000, "cuModuleLoadData")(&module, ".version 7.0\n.nonsense\n"));
    say("module.load.NULL", ASK((void **, const void *), 2000, "cuModuleLoadData")(&module, NULL));
    say("module.load.no_file", ASK((void **, const char *), 2000, "cuModuleLoad")(&module, "/no/such/file"));
    say("module.load", ASK((void **, const void *), 2000, "cuModuleLoadData")(&module, KERNEL));
    say("module.function.unknown", ASK((void **, void *, const char *), 2000, "cuModuleGetFunction")(&function, module, "no"));
    say("module.function", ASK((void **, void *, const char *), 2000, "cuModuleGetFunction")(&function, module, "one"));
    say("module.param.0", ASK((void *, size_t, size_t *, size_t *), 12040, "cuFuncGetParamInfo")(function, 0, &offset, &size));
    say("module.param.0.size", (long long)size);
    say("module.param.1", ASK((void *, size_t, size_t *, size_t *), 12040, "cuFuncGetParamInfo")(function, 1, &offset, &size));
    say("module.attribute.max_threads", ASK((int *, int, void *), 2020, "cuFuncGetAttribute")(&value, 0, function));
    say("module.attribute.max_threads.value", value);
    say("module.attribute.99", ASK((int *, int, void *), 2020, "cuFuncGetAttribute")(&value, 99, function));
    say("module.unload", ASK((void *), 2000, "cuModuleUnload")(module));
    function = function_of("none");
    say("module.launch", launch(function, 1, 32, 0, NULL, NULL));
    say("module.launch.grid0", launch(function, 0, 32, 0, NULL, NULL));
    say("module.launch.block0", launch(function, 1, 0, 0, NULL, NULL));
    say("module.launch.block1025", launch(function, 1, 1025, 0, NULL, NULL));
    say("module.launch.shared", launch(function, 1, 32, 1 << 20, NULL, NULL));
    say("module.launch.NULL", launch(NULL, 1, 32, 0, NULL, NULL));
    say("module.launch.sync", ASK((void), 2000, "cuCtxSynchronize")());
}

static void events(void)
{
    void *event = NULL, *untimed = NULL;
    float ms = 0;
    say("event.create.flags", ASK((void **, unsigned), 2000, "cuEventCreate")(&event, 0x100));
    say("event.create.interprocess", ASK((void **, unsigned), 2000, "cuEventCreate")(&event, 4));
    say("event.create", ASK((void **, unsigned), 2000, "cuEventCreate")(&event, 0));
    ASK((void **, unsigned), 2000, "cuEventCreate")(&untimed, 2);
    say("event.query.unrecorded", ASK((void *), 2000, "cuEventQuery")(event));
    say("event.synchronize.unrecorded", ASK((void *), 2000, "cuEventSynchronize")(event));
    say("event.elapsed.unrecorded", ASK((float *, void *, void *), 2000, "cuEventElapsedTime")(&ms, event, event));
    ASK((void *, void *), 2000, "cuEventRecord")(event, NULL);
    ASK((void *, void *), 2000, "cuEventRecord")(untimed, NULL);
    ASK((void), 2000, "cuCtxSynchronize")();
    say("event.query", ASK((void *), 2000, "cuEventQuery")(event));
    say("event.elapsed", ASK((float *, void *, void *), 2000, "cuEventElapsedTime")(&ms, event, event));
    say("event.elapsed.untimed", ASK((float *, void *, void *), 2000, "cuEventElapsedTime")(&ms, event, untimed));
    say("event.elapsed.NULL", ASK((float *, void *, void *), 2000, "cuEventElapsedTime")(NULL, event, event));
    say("event.destroy", ASK((void *), 4000, "cuEventDestroy")(event));
}

void probe_stream(void)
{
    void *stream = NULL;
    int least = 0, greatest = 0;
    need_context();
    say("stream.create.flags", ASK((void **, unsigned), 2000, "cuStreamCreate")(&stream, 2));
    say("stream.create.NULL", ASK((void **, unsigned), 2000, "cuStreamCreate")(NULL, 0));
    say("stream.create", ASK((void **, unsigned), 2000, "cuStreamCreate")(&stream, 1));
    say("stream.query", ASK((void *), 2000, "cuStreamQuery")(stream));
    say("stream.synchronize", ASK((void *), 2000, "cuStreamSynchronize")(stream));
    ASK((int *, int *), 5050, "cuCtxGetStreamPriorityRange")(&least, &greatest);
    say("stream.priority.least", least);
    say("stream.priority.greatest", greatest);
    say("stream.destroy", ASK((void *), 4000, "cuStreamDestroy")(stream));
    say("stream.wait_event.NULL", ASK((void *, void *, unsigned), 3020, "cuStreamWaitEvent")(NULL, NULL, 0));
    events();
}

/* ---- captures ---- */

static int begin(void *stream, int mode)
{
    return ASK((void *, int), 10010, "cuStreamBeginCapture")(stream, mode);
}

static int end(void *stream)
{
    void *graph = NULL;
    return ASK((void *, void **), 10000, "cuStreamEndCapture")(stream, &graph);
}

/* What a call answers while a stream captures, and how the capture ends then. */
#define IN_CAPTURE(name, call)                   \
    do {                                         \
        begin(stream, 0);                        \
        say("capture." name, call);              \
        say("capture." name ".end", end(stream)); \
    } while (0)

static void forbidden(void *stream, void *blocking)
{
    pointer p = 0;
    void *event = NULL, *function = function_of("none"); /* loading would spoil a capture */
    size_t unused = 0, total = 0;
    ASK((void **, unsigned), 2000, "cuEventCreate")(&event, 0);
    IN_CAPTURE("cuStreamSynchronize", ASK((void *), 2000, "cuStreamSynchronize")(stream));
    IN_CAPTURE("cuStreamQuery", ASK((void *), 2000, "cuStreamQuery")(stream));
    IN_CAPTURE("cuCtxSynchronize", ASK((void), 2000, "cuCtxSynchronize")());
    IN_CAPTURE("cuMemAlloc", ASK((pointer *, size_t), 3020, "cuMemAlloc")(&p, 1000));
    IN_CAPTURE("cuMemGetInfo", ASK((size_t *, size_t *), 3020, "cuMemGetInfo")(&unused, &total));
    IN_CAPTURE("cuEventQuery", ASK((void *), 2000, "cuEventQuery")(event));
    IN_CAPTURE("cuEventRecord.other_stream", ASK((void *, void *), 2000, "cuEventRecord")(event, blocking));
    begin(blocking, 0);
    say("capture.legacy_stream", ASK((void *, void *), 2000, "cuEventRecord")(event, NULL));
    say("capture.legacy_stream.end", end(blocking));
    begin(stream, 0);
    ASK((void *, void *), 2000, "cuEventRecord")(event, stream);
    say("capture.captured_event.query", ASK((void *), 2000, "cuEventQuery")(event));
    say("capture.captured_event.end", end(stream));
    begin(stream, 0);
    ASK((void *, void *), 2000, "cuEventRecord")(event, stream);
    say("capture.fork", ASK((void *, void *, unsigned), 3020, "cuStreamWaitEvent")(blocking, event, 0));
    say("capture.fork.end_of_fork", end(blocking));
    say("capture.fork.launch", launch(function, 1, 1, 0, blocking, NULL));
    say("capture.fork.unjoined", end(stream));
}

static void memory_in_capture(void *stream)
{
    pointer p = 0;
    begin(stream, 0);
    say("capture.cuMemAllocAsync", ASK((pointer *, size_t, void *), 11020, "cuMemAllocAsync")(&p, 1000, stream));
    say("capture.cuMemFreeAsync", ASK((pointer, void *), 11020, "cuMemFreeAsync")(p, stream));
    say("capture.memory.end", end(stream));
}

void probe_capture(void)
{
    void *stream = NULL, *blocking = NULL;
    int status = -1, mode = 9;
    need_context();
    ASK((void **, unsigned), 2000, "cuStreamCreate")(&stream, 1);
    ASK((void **, unsigned), 2000, "cuStreamCreate")(&blocking, 0);
    say("capture.begin.legacy", begin(NULL, 0));
    say("capture.begin.mode9", begin(stream, 9));
    say("capture.end.not_begun", end(stream));
    say("capture.begin", begin(stream, 0));
    say("capture.begin.twice", begin(stream, 0));
    ASK((void *, int *), 10000, "cuStreamIsCapturing")(stream, &status);
    say("capture.status", status);
    say("capture.end.empty", end(stream));
    say("capture.exchange.mode9", ASK((int *), 10010, "cuThreadExchangeStreamCaptureMode")(&mode));
    forbidden(stream, blocking);
    memory_in_capture(stream);
}
