"""What correct and fast mean: contract, inputs, reference, tolerance and templates of each operator."""
