// SPDX-License-Identifier: Apache-2.0
// Large copies with a device whose memory is this process': the driver maps the buffer, and the
// session's channels read and write there. So nothing is copied in between. False: the copy cannot
// go this way now, nothing has happened, and the caller takes the usual way. Executor thread.
#pragma once

#include "worker/opencl/copy.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/incoming.h"

namespace tendril::worker::opencl {

// Whether large copies of a new queue may go this way.
bool copies_in_place(const gpu::OpenclDriver& driver, cl_device_id device, bool in_order,
                     cl_command_queue_properties properties);

// `*event`: over when the data are on the device. `*result`: of the copy.
bool write_in_place(Executor& w, const wire::opencl::write_request& m, const Command& command,
                    Incoming* data, cl_event* event, cl_int* result);
// What follows in the queue waits until the data have left. So only a read that the program awaits
// goes this way, and only where nobody else waits for the device. `*job`: sends the data.
bool read_in_place(Executor& w, const wire::opencl::read_request& m, const Command& command,
                   JobRef* job, cl_event* event);

}  // namespace tendril::worker::opencl
