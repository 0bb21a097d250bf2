"""What a host does around the accelerator: from a picture file to the input tensor."""
