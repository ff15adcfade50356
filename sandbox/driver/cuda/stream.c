#include "stream.h"
void sim_streams_end(struct sim_context *context) { (void)context; }
bool sim_capture_forbids(struct sim_context *context) { (void)context; return false; }
void sim_device_wait(struct sim_device *device) { (void)device; }
