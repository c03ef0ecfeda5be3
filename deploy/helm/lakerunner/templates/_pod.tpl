{{/* The pod of a role: (root, name of the role, its values, arguments of lakerunner, what it calls). */}}

{{- define "lakerunner.env" -}}
{{- $root := index . 0 }}{{ $name := index . 1 -}}
{{- $allowed := (include "lakerunner.secrets" (list $root $name) | fromJson).settings -}}
{{- range $setting, $from := $root.Values.secrets }}
{{- if and (has $setting $allowed) (not (and (eq $setting "spark.options") (ne $root.Values.spark.mode "local"))) }}
- name: LAKERUNNER_{{ $setting | replace "." "_" | upper }}
  valueFrom:
    secretKeyRef: {name: {{ $from.secret }}, key: {{ $from.key | quote }}}
{{- end }}
{{- end }}
{{- with $root.Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "lakerunner.envFrom" -}}
{{- $root := index . 0 }}{{ $calls := index . 1 -}}
{{- if and $root.Values.bucketCredentials (or (has "bucket" $calls) (has "queue" $calls)) }}
envFrom:
{{- range $root.Values.bucketCredentials }}
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "lakerunner.fileMounts" -}}
{{- range .Values.files }}
- name: {{ .name }}
  mountPath: {{ .path }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "lakerunner.fileVolumes" -}}
{{- range .Values.files }}
- name: {{ .name }}
  {{- if .secret }}
  secret: {secretName: {{ .secret }}}
  {{- else }}
  configMap: {name: {{ .configMap }}}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "lakerunner.dataVolume" -}}
- name: data
{{- if .storageClass }}
  ephemeral:
    volumeClaimTemplate:
      spec:
        accessModes: [ReadWriteOnce]
        storageClassName: {{ .storageClass }}
        resources: {requests: {storage: {{ .size }}}}
{{- else }}
  emptyDir: {sizeLimit: {{ .size }}}
{{- end }}
{{- end -}}

{{- define "lakerunner.probes" -}}
# Imports and compiled kernels are loaded before the port opens.
startupProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}

{{- define "lakerunner.podTemplate" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $role := index . 2 -}}
{{- $known := include "lakerunner.connections" $root | fromYaml -}}
{{- $calls := (include "lakerunner.calls" (list $root $name) | fromJson).calls -}}
{{- $drives := and (has "spark" $calls) (ne $root.Values.spark.mode "local") -}}
{{- $onKubernetes := and (has "spark" $calls) (eq $root.Values.spark.mode "kubernetes") -}}
metadata:
  labels:
    {{- include "lakerunner.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $name }}
  annotations:
    checksum/config: {{ include "lakerunner.config" $root | sha256sum }}
    {{- with $role.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ if $onKubernetes }}{{ include "lakerunner.sparkAccount" $root }}{{ else }}{{ include "lakerunner.serviceAccount" $root }}{{ end }}
  automountServiceAccountToken: {{ $onKubernetes }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "lakerunner.grace" (list $root $name $role) }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with $role.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $role.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $role.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $role.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $role.topologySpread }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "lakerunner.selector" (list $root $name) | nindent 10 }}
  {{- end }}
  containers:
    - name: {{ $name }}
      image: {{ include "lakerunner.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: [{{ $name }}]
      securityContext:
        {{- toYaml $root.Values.containerSecurityContext | nindent 8 }}
      ports:
        - {name: http, containerPort: {{ $known.ports.http }}}
        {{- if eq $name "query-worker" }}
        - {name: flight, containerPort: {{ $known.ports.flight }}}
        {{- end }}
        {{- if $drives }}
        - {name: spark-driver, containerPort: {{ index $known.ports "spark-driver" }}}
        - {name: spark-blocks, containerPort: {{ index $known.ports "spark-blocks" }}}
        {{- end }}
      env:
        - {name: LAKERUNNER_CONFIG, value: /etc/lakerunner/lakerunner.yaml}
        {{- if $drives }}
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- with index $root.Values.secrets "spark.options" }}
        - name: SPARK_SECRET_OPTIONS
          valueFrom:
            secretKeyRef: {name: {{ .secret }}, key: {{ .key | quote }}}
        {{- end }}
        - name: LAKERUNNER_SPARK_OPTIONS
          value: {{ include "lakerunner.sparkOptions" $root | quote }}
        {{- end }}
        {{- include "lakerunner.env" (list $root $name) | nindent 8 }}
      {{- include "lakerunner.envFrom" (list $root $calls) | nindent 6 }}
      {{- include "lakerunner.probes" . | nindent 6 }}
      lifecycle:
        preStop:
          exec: {command: [sleep, {{ $root.Values.preStopSeconds | quote }}]}
      resources:
        {{- toYaml $role.resources | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/lakerunner, readOnly: true}
        - {name: data, mountPath: /data}
        {{- include "lakerunner.fileMounts" $root | nindent 8 }}
  volumes:
    - name: config
      configMap: {name: {{ include "lakerunner.fullname" $root }}}
    {{- include "lakerunner.dataVolume" $role.data | nindent 4 }}
    {{- include "lakerunner.fileVolumes" $root | nindent 4 }}
{{- end -}}
