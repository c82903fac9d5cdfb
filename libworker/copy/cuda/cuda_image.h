/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A kernel, as scripts/kernel_image.sh writes it: machine code for GPUs of a compute capability, if ptxas of the CUDA Toolkit was at
 * hand, then the PTX text, which the driver compiles (major 0). cuModuleLoadData() accepts each of them.
 */
struct scout__cuda_image {
	int major, minor;
	const unsigned char *code;
};

/* The copy engine's kernel; the entry of the PTX text is the last. */
extern const struct scout__cuda_image scout__cuda_images[];

/* The machine code for a GPU of that capability, or the PTX text. */
const struct scout__cuda_image *scout__cuda_image_for(const struct scout__cuda_image *images, int major, int minor);
