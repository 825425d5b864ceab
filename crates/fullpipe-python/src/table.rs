//! Tables for Python: the Arrow PyCapsule interface, and plain lists without Arrow.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};
use std::sync::Arc;

/// A table with the Arrow PyCapsule interface: pandas, polars, DuckDB and pyarrow read it without a
/// copy.
#[pyclass(frozen, module = "fullpipe._fullpipe")]
pub struct Table {
    batch: RecordBatch,
}

/// Builds a table column by column.
#[derive(Default)]
pub struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl Columns {
    pub fn text<S: AsRef<str>>(&mut self, name: &str, values: Vec<Option<S>>) {
        self.add(name, DataType::Utf8, Arc::new(StringArray::from_iter(values)));
    }

    pub fn number(&mut self, name: &str, values: Vec<Option<f64>>) {
        self.add(name, DataType::Float64, Arc::new(Float64Array::from(values)));
    }

    pub fn integer(&mut self, name: &str, values: Vec<i64>) {
        self.add(name, DataType::Int64, Arc::new(Int64Array::from(values)));
    }

    pub fn flag(&mut self, name: &str, values: Vec<bool>) {
        self.add(name, DataType::Boolean, Arc::new(BooleanArray::from(values)));
    }

    fn add(&mut self, name: &str, data_type: DataType, values: ArrayRef) {
        self.fields.push(Field::new(name, data_type, true));
        self.arrays.push(values);
    }

    pub fn finish(self) -> PyResult<Table> {
        let batch =
            RecordBatch::try_new(Arc::new(Schema::new(self.fields)), self.arrays).map_err(arrow_error)?;
        Ok(Table { batch })
    }
}

fn arrow_error(e: ArrowError) -> PyErr {
    PyRuntimeError::new_err(e.to_string())
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// Names of the columns; each ends with its unit.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|f| f.name().clone()).collect()
    }

    /// A column as a list, with None for missing values.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let Some(column) = self.batch.column_by_name(name) else {
            let columns = self.columns().join(", ");
            return Err(PyKeyError::new_err(format!("no column `{name}`; the columns are {columns}")));
        };
        list(py, column)
    }

    /// All columns as lists.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (field, column) in self.batch.schema().fields().iter().zip(self.batch.columns()) {
            dict.set_item(field.name(), list(py, column)?)?;
        }
        Ok(dict)
    }

    /// Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref()).map_err(arrow_error)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Arrow PyCapsule interface. A requested schema is ignored, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    fn __repr__(&self) -> String {
        format!("<fullpipe.Table of {} rows: {}>", self.batch.num_rows(), self.columns().join(", "))
    }
}

fn list<'py>(py: Python<'py>, column: &ArrayRef) -> PyResult<Bound<'py, PyList>> {
    let any = column.as_any();
    if let Some(values) = any.downcast_ref::<Float64Array>() {
        return PyList::new(py, values.iter());
    }
    if let Some(values) = any.downcast_ref::<StringArray>() {
        return PyList::new(py, values.iter());
    }
    if let Some(values) = any.downcast_ref::<Int64Array>() {
        return PyList::new(py, values.iter());
    }
    if let Some(values) = any.downcast_ref::<BooleanArray>() {
        return PyList::new(py, values.iter());
    }
    Err(PyRuntimeError::new_err(format!("unsupported column type {}", column.data_type())))
}
